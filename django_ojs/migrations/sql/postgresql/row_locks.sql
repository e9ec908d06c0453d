-- The rows that are locked where there are no advisory locks (see storage/dialects/row_locks.py): 4096 of
-- each of five kinds. None is ever changed, so that the table stays as it is.

CREATE TABLE IF NOT EXISTS ojs_lock (slot integer NOT NULL PRIMARY KEY);

INSERT INTO ojs_lock (slot) SELECT generate_series(0, 5 * 4096 - 1) ON CONFLICT DO NOTHING;

-- What admission.sql creates: it knows of advisory locks only.
DROP FUNCTION IF EXISTS ojs_admit_tenant(text, text, bigint, bigint);

DROP FUNCTION IF EXISTS ojs_admit_all(text[], bigint[], bigint[], boolean);

DROP FUNCTION IF EXISTS ojs_admit(text, bigint, bigint, boolean);

DROP FUNCTION IF EXISTS ojs_spend(integer, bigint);

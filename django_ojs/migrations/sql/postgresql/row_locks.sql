-- The rows that are locked where there are no advisory locks (see storage/dialects/row_locks.py): 4096 of
-- each of five kinds. None is ever changed, so that the table stays as it is.

CREATE TABLE IF NOT EXISTS ojs_lock (slot integer NOT NULL PRIMARY KEY);

INSERT INTO ojs_lock (slot) SELECT generate_series(0, 5 * 4096 - 1) ON CONFLICT DO NOTHING;

-- What admission.sql creates: it knows of advisory locks only.
DROP FUNCTION IF EXISTS ojs_admit_tenant;

DROP FUNCTION IF EXISTS ojs_admit_all;

DROP FUNCTION IF EXISTS ojs_admit;

DROP FUNCTION IF EXISTS ojs_spend;

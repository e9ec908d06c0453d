-- The rows that are locked where there are no advisory locks (see storage/dialects/row_locks.py): 4096 of
-- each of five kinds. None is ever changed, so that the table stays as it is.

CREATE TABLE IF NOT EXISTS ojs_lock (
    kind smallint NOT NULL,
    number smallint NOT NULL,
    PRIMARY KEY (kind, number)
);

INSERT INTO ojs_lock (kind, number)
SELECT kind, number FROM generate_series(1, 5) AS kind CROSS JOIN generate_series(0, 4095) AS number
ON CONFLICT DO NOTHING;

-- What admission.sql creates: it knows of advisory locks only.
DROP FUNCTION IF EXISTS ojs_admit_tenant(text, text, bigint, bigint);

DROP FUNCTION IF EXISTS ojs_admit_all(text[], bigint[], bigint[], boolean);

DROP FUNCTION IF EXISTS ojs_admit(text, bigint, bigint, boolean);

DROP FUNCTION IF EXISTS ojs_spend(integer, bigint);

-- What tenants add to the table of jobs. A job has the mark of this extension where the configuration
-- of its queue names tenants; its tenant is in its metadata, as `spec.tenant_of` says.
--
-- This file may be run again: what exists stays.

-- An index of MariaDB cannot have an expression, so it needs a column.
ALTER TABLE ojs_job ADD COLUMN IF NOT EXISTS tenant varchar(255) COLLATE utf8mb4_nopad_bin
    GENERATED ALWAYS AS (CASE
        WHEN marks & {mark} = 0 THEN NULL
        WHEN JSON_TYPE(JSON_EXTRACT(meta, '$.tenant_id')) = 'STRING'
         AND JSON_VALUE(meta, '$.tenant_id') REGEXP '^[a-zA-Z0-9][a-zA-Z0-9._:-]{0,254}$'
        THEN JSON_VALUE(meta, '$.tenant_id') ELSE '_default' END) VIRTUAL;

-- FETCH by turns: the tenants of a priority, and the jobs of each.
CREATE INDEX IF NOT EXISTS ojs_job_tenant_turn
    ON ojs_job (queue, state, priority DESC, tenant, enqueued_at, id);

-- Tenants of a queue: the number of waiting jobs of each.
CREATE INDEX IF NOT EXISTS ojs_job_tenant_waiting ON ojs_job (queue, tenant, state);

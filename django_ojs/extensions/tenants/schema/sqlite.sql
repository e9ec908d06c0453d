-- What tenants add to the table of jobs. A job has the mark of this extension where the configuration
-- of its queue names tenants; its tenant is in its metadata, as `spec.tenant_of` says.
--
-- This file may be run again: what exists stays.

-- FETCH by turns: the tenants of a priority, and the jobs of each. Jobs that no claim considers are
-- left out.
CREATE INDEX IF NOT EXISTS ojs_job_tenant_turn ON ojs_job (
    queue, priority DESC,
    CASE WHEN json_type(meta, '$.tenant_id') = 'text'
          AND meta ->> '$.tenant_id' GLOB '[a-zA-Z0-9]*'
          AND meta ->> '$.tenant_id' NOT GLOB '*[^a-zA-Z0-9._:-]*'
          AND length(meta ->> '$.tenant_id') <= 255
         THEN meta ->> '$.tenant_id' ELSE '_default' END,
    enqueued_at, id
) WHERE marks & {mark} <> 0 AND state = 'available' AND hold < 64;

-- Tenants of a queue: the number of waiting jobs of each.
CREATE INDEX IF NOT EXISTS ojs_job_tenant_waiting ON ojs_job (
    queue,
    CASE WHEN json_type(meta, '$.tenant_id') = 'text'
          AND meta ->> '$.tenant_id' GLOB '[a-zA-Z0-9]*'
          AND meta ->> '$.tenant_id' NOT GLOB '*[^a-zA-Z0-9._:-]*'
          AND length(meta ->> '$.tenant_id') <= 255
         THEN meta ->> '$.tenant_id' ELSE '_default' END
) WHERE marks & {mark} <> 0 AND state IN ('available', 'retryable', 'scheduled');

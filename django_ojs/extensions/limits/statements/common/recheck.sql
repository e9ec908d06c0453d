-- Appends to the journal the keys that have held jobs without a reason: none of their jobs is active, and
-- the journal has no row of the key. Rows are missing only after a lost trigger or a manual change.
INSERT INTO ojs_limit_check (limit_key, due_at)
SELECT held.limit_key, {now} FROM (
    SELECT DISTINCT {limit_key} AS limit_key FROM ojs_job
    WHERE {limit_key} IS NOT NULL AND state {before_fetch} AND hold = 78
) AS held
WHERE NOT EXISTS (SELECT 1 FROM ojs_job WHERE {limit_key} = held.limit_key AND state {before_ack})
  AND NOT EXISTS (SELECT 1 FROM ojs_limit_check AS c WHERE c.limit_key = held.limit_key)

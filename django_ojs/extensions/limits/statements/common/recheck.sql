-- Appends keys to the journal that have held jobs, and no reason for it: none of their jobs is active,
-- and no check is due. A row of the journal is lost only with its trigger, or by hand.
INSERT INTO ojs_limit_check (limit_key, due_at)
SELECT held.limit_key, {now} FROM (
    SELECT DISTINCT {limit_key} AS limit_key FROM ojs_job
    WHERE {limit_key} IS NOT NULL AND state {before_fetch} AND hold = 78
) AS held
WHERE NOT EXISTS (SELECT 1 FROM ojs_job WHERE {limit_key} = held.limit_key AND state {before_ack})
  AND NOT EXISTS (SELECT 1 FROM ojs_limit_check AS c WHERE c.limit_key = held.limit_key)

-- A condition of insert_jobs.sql, in place of ojs_admit_all(): none of these queues has a bound.
--
-- One queue in which the jobs have to be counted sends the whole batch to be counted.
WHERE NOT EXISTS (
    SELECT 1 FROM unnest(%s::text[]) AS wanted (queue) LEFT JOIN ojs_bound AS b USING (queue)
    WHERE b.ceiling IS NOT NULL OR b.ceiling_bytes IS NOT NULL
       OR (b.queue IS NULL AND EXISTS (SELECT 1 FROM ojs_bound WHERE queue = '_default')))

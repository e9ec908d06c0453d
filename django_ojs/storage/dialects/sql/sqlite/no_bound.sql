-- A condition of insert_jobs.sql: none of the queues has a bound, nor does the default policy.
--
-- If one of the queues has a bound, no job of the batch is stored without counting.
NOT EXISTS (
    SELECT 1 FROM ojs_bound AS b CROSS JOIN json_each(%(rows)s) AS r
    WHERE b.queue IN (r.value ->> 'queue', '_default')
      AND (b.ceiling IS NOT NULL OR b.ceiling_bytes IS NOT NULL))

-- The waiting jobs of each key, counted up to twice `most`, and the policy of one of its jobs.
--
-- A job waits for its key if it is available, or due before the pause of the key ends or before the last
-- rescheduled job is due. A second is added, because the job that pauses a key is due just after the pause.
--
-- ORDER BY due_at makes PostgreSQL read the index of these jobs, whatever the statistics say. Otherwise it
-- would read the whole table for a key with few jobs, if another key has most of them.
SELECT wanted.key,
       (SELECT count(*) FROM (SELECT 1 FROM ojs_job
                              WHERE options ->> 'limit_key' = wanted.key AND state {before_fetch}
                              LIMIT %(most)s) AS available)
       + (SELECT count(*) FROM (SELECT 1 FROM ojs_job
                                WHERE options ->> 'limit_key' = wanted.key AND state {before_timer}
                                  AND due_at <= GREATEST(known.rescheduled_until, known.paused_until)
                                              + interval '1 second'
                                ORDER BY due_at LIMIT %(most)s) AS later),
       COALESCE((SELECT (options -> 'rate_limit')::text FROM ojs_job
                 WHERE options ->> 'limit_key' = wanted.key AND state {before_fetch} LIMIT 1),
                (SELECT (options -> 'rate_limit')::text FROM ojs_job
                 WHERE options ->> 'limit_key' = wanted.key AND state {before_ack} LIMIT 1),
                (SELECT (options -> 'rate_limit')::text FROM ojs_job
                 WHERE options ->> 'limit_key' = wanted.key AND state {before_timer} ORDER BY due_at LIMIT 1))
FROM unnest(%(keys)s::text[]) AS wanted (key) LEFT JOIN ojs_limit_key AS known ON known.key = wanted.key

-- Of each key the waiting jobs, up to twice a number, and the policy of one of its jobs.
--
-- Jobs wait for a key that are available, and those that are due no later than it is paused, or than
-- the last job that it has rescheduled; or a second later, as the job that pauses a key is due after it.
--
-- In the order of due_at, so that their index is read whatever the statistics say: of a key with few
-- such jobs PostgreSQL would read the whole table, where most are those of another key.
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

-- The waiting jobs of each key, counted up to twice `most`, and the policy of one of its jobs.
--
-- A job waits for its key if it is available, or due before the pause of the key ends or before the last
-- rescheduled job is due. A second is added, because the job that pauses a key is due just after the pause.
SELECT wanted.value,
       (SELECT count(*) FROM (SELECT 1 FROM ojs_job
                              WHERE options ->> '$.limit_key' = wanted.value AND state {before_fetch}
                              LIMIT %(most)s) AS available)
       + (SELECT count(*) FROM (SELECT 1 FROM ojs_job
                                WHERE options ->> '$.limit_key' = wanted.value AND state {before_timer}
                                  AND due_at <= strftime('%%Y-%%m-%%d %%H:%%M:%%f',
                                                    max(COALESCE(known.rescheduled_until, ''),
                                                        COALESCE(known.paused_until, '')),
                                                    '+1 second')
                                LIMIT %(most)s) AS later),
       COALESCE((SELECT options -> '$.rate_limit' FROM ojs_job
                 WHERE options ->> '$.limit_key' = wanted.value AND state {before_fetch} LIMIT 1),
                (SELECT options -> '$.rate_limit' FROM ojs_job
                 WHERE options ->> '$.limit_key' = wanted.value AND state {before_ack} LIMIT 1),
                (SELECT options -> '$.rate_limit' FROM ojs_job
                 WHERE options ->> '$.limit_key' = wanted.value AND state {before_timer} LIMIT 1))
FROM json_each(%(keys)s) AS wanted LEFT JOIN ojs_limit_key AS known ON known.key = wanted.value

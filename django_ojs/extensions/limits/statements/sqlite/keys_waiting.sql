-- Of each key the waiting jobs, up to twice a number, and the policy of one of its jobs.
--
-- Jobs wait for a key that are available, and those that are due no later than it is paused, or than
-- the last job that it has rescheduled; or a second later, as the job that pauses a key is due after it.
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

-- The waiting jobs of a key, counted up to twice `most`, and the policy of one of its jobs.
--
-- A job waits for its key if it is available, or due before the pause of the key ends or before the last
-- rescheduled job is due. A second is added, because the job that pauses a key is due just after the pause.
SELECT %(key)s,
       (SELECT count(*) FROM (SELECT 1 FROM ojs_job
                              WHERE limit_key = %(key)s AND state {before_fetch}
                              LIMIT %(most)s) AS available)
       + (SELECT count(*) FROM (SELECT 1 FROM ojs_job
                                WHERE limit_key = %(key)s AND state {before_timer}
                                  AND due_at <= (SELECT GREATEST(COALESCE(rescheduled_until, '1000-01-01'),
                                                                 COALESCE(paused_until, '1000-01-01'))
                                                        + INTERVAL 1 SECOND
                                                 FROM ojs_limit_key WHERE ojs_limit_key.key = %(key)s)
                                LIMIT %(most)s) AS later),
       COALESCE((SELECT JSON_EXTRACT(options, '$.rate_limit') FROM ojs_job
                 WHERE limit_key = %(key)s AND state {before_fetch} LIMIT 1),
                (SELECT JSON_EXTRACT(options, '$.rate_limit') FROM ojs_job
                 WHERE limit_key = %(key)s AND state {before_ack} LIMIT 1),
                (SELECT JSON_EXTRACT(options, '$.rate_limit') FROM ojs_job
                 WHERE limit_key = %(key)s AND state {before_timer} LIMIT 1))

-- The queues that have had jobs with a limit by key.
SELECT name FROM ojs_queue WHERE has_limit_keys ORDER BY name

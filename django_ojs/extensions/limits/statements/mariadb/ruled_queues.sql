-- The queues that have had jobs with a limit by key.
SELECT name FROM ojs_queue WHERE rules & %(rule)s ORDER BY name

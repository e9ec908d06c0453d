-- Counts jobs by queue and state, as the triggers keep them.
SELECT queue, state, n FROM ojs_count ORDER BY queue, state

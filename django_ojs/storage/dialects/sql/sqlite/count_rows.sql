-- The rows that add up to the counts: the triggers keep one for each queue and state.
SELECT queue, state, n, bytes FROM ojs_count WHERE {{where}}

-- The rows that add up to the counts: the folded counts and what changed since.
SELECT queue, state, n FROM ojs_count
UNION ALL SELECT queue, state, n FROM ojs_count_change

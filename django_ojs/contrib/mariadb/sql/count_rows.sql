-- The rows that add up to the counts: the folded counts and what changed since.
SELECT queue, state, n, bytes FROM ojs_count WHERE {{where}}
UNION ALL SELECT queue, state, n, bytes FROM ojs_count_change WHERE {{where}}

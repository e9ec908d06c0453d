-- Corrects the counts.
--
-- The difference is added as one more change, found and stored under one snapshot: changes that
-- other transactions commit meanwhile are added as always. About ojs.counting see fold_counts.sql.
WITH counting AS MATERIALIZED (SELECT set_config('ojs.counting', 'on', true)),
wrong (queue, state, counted, actual, counted_bytes, bytes) AS ({count_differences}),
corrected AS (
    INSERT INTO ojs_count_change
    SELECT queue, state, actual - counted, bytes - counted_bytes FROM wrong, counting
)
SELECT queue, state, counted, actual, counted_bytes, bytes FROM wrong

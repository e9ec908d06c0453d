-- Counts jobs and their bytes by {{by}}, under one snapshot.
SELECT {{by}}, sum(n), sum(bytes) FROM ({{count_rows}}) AS counted GROUP BY {{by}} ORDER BY {{by}}

-- The known queues, as in common/known_queues.sql, but with row numbers in place of a LIMIT that is an
-- expression, and without a cast to text.
WITH counted AS (
    SELECT queue, sum(n) AS jobs,
           sum(CASE WHEN state IN ({{waiting}}) THEN n ELSE 0 END) AS waiting,
           sum(CASE WHEN state IN ({{unfinished}}) THEN n ELSE 0 END) AS unfinished
    FROM ({{count_rows}}) AS counts WHERE queue NOT IN ({{reserved}}) AND {{condition}}
    GROUP BY queue HAVING {{with_jobs}}
),
with_row AS (
    SELECT name AS queue, config FROM ojs_queue WHERE name NOT IN ({{reserved}})
),
known AS (
    SELECT counted.queue, config, jobs, waiting, unfinished
    FROM counted LEFT JOIN with_row ON with_row.queue = counted.queue
    WHERE config IS NULL OR config NOT LIKE %(deleted)s OR unfinished > 0
    UNION ALL
    SELECT queue, config, 0, 0, 0 FROM with_row
    WHERE config NOT LIKE %(deleted)s AND {{condition}}
      AND NOT EXISTS (SELECT 1 FROM counted WHERE counted.queue = with_row.queue)
),
ranked AS (
    SELECT queue, jobs, waiting, unfinished,
           CASE WHEN coalesce(config, %(nothing)s) <> %(nothing)s OR {{in_code}}
                THEN 1 ELSE 0 END AS configured
    FROM known
),
placed AS (
    SELECT *, row_number() OVER (ORDER BY {{order}}) AS place FROM ranked WHERE {{after}}
)
SELECT total.n, page.queue, states.state, states.n
FROM (SELECT count(*) AS n FROM ranked) AS total
LEFT JOIN (SELECT * FROM placed
           WHERE place > %(offset)s AND place <= %(offset)s + {{limit}}) AS page ON 1 = 1
LEFT JOIN (SELECT queue AS name, state, sum(n) AS n FROM ({{count_rows}}) AS counts
           GROUP BY queue, state) AS states ON states.name = page.queue
ORDER BY page.place

-- The known queues: those with a row that is not deleted, and those with jobs. A deleted queue is
-- known while some of its jobs have not ended.
--
-- Each row has the number of all known queues that match, the name of a queue of the page, and one
-- of its states with the number of jobs in it, if there are any. If the page is empty, one row has
-- no name. So the database sorts and counts the queues, however many there are, and the process
-- reads a page.
WITH counted AS (
    SELECT queue, sum(n) AS jobs,
           sum(CASE WHEN state IN ({{waiting}}) THEN n ELSE 0 END) AS waiting,
           sum(CASE WHEN state IN ({{unfinished}}) THEN n ELSE 0 END) AS unfinished
    FROM ({{count_rows}}) AS counts WHERE queue NOT IN ({{reserved}}) AND {{condition}}
    GROUP BY queue HAVING {{with_jobs}}
),
stored AS (
    SELECT name AS queue, CAST(config AS text) AS config FROM ojs_queue
    WHERE name NOT IN ({{reserved}})
),
known AS (
    SELECT counted.queue, config, jobs, waiting, unfinished
    FROM counted LEFT JOIN stored ON stored.queue = counted.queue
    WHERE config IS NULL OR config NOT LIKE %(deleted)s OR unfinished > 0
    UNION ALL
    SELECT queue, config, 0, 0, 0 FROM stored
    WHERE config NOT LIKE %(deleted)s AND {{condition}}
      AND NOT EXISTS (SELECT 1 FROM counted WHERE counted.queue = stored.queue)
),
ranked AS (
    SELECT queue, jobs, waiting, unfinished,
           CASE WHEN coalesce(config, %(nothing)s) <> %(nothing)s OR {{in_code}}
                THEN 1 ELSE 0 END AS configured
    FROM known
)
SELECT total.n, page.queue, states.state, states.n
FROM (SELECT count(*) AS n FROM ranked) AS total
LEFT JOIN (SELECT * FROM ranked WHERE {{after}} ORDER BY {{order}}
           LIMIT {{limit}} OFFSET %(offset)s) AS page ON 1 = 1
LEFT JOIN (SELECT queue AS name, state, sum(n) AS n FROM ({{count_rows}}) AS counts
           GROUP BY queue, state) AS states ON states.name = page.queue
ORDER BY {{order}}

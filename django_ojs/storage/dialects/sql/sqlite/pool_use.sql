-- How many jobs of its queues the workers of a pool have in flight, for the holder of the write lock;
-- and that it sees all that was committed.
SELECT (SELECT count(*) FROM ojs_job
        WHERE state {before_ack} AND worker_id IN (SELECT id FROM ojs_worker WHERE pool = %(pool)s)
          AND EXISTS (SELECT 1 FROM json_each(%(queues)s) WHERE value IN (ojs_job.queue, '*'))),
       1

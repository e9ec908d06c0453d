-- How many jobs of its queues the workers of a pool have in flight, for the holder of the pool's lock;
-- and whether the statement sees all that was committed before the lock was taken.
SELECT (SELECT count(*) FROM ojs_job
        WHERE state {before_ack} AND worker_id IN (SELECT id FROM ojs_worker WHERE pool = %(pool)s)
          AND (queue IN %(queues)s OR '*' IN %(queues)s)),
       @@tx_isolation LIKE 'READ-%%'

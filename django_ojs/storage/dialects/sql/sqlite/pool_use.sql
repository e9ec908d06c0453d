-- How many jobs the workers of a pool have in flight, for the holder of the write lock; and that it
-- sees all that was committed.
SELECT (SELECT count(*) FROM ojs_job
        WHERE state {before_ack} AND worker_id IN (SELECT id FROM ojs_worker WHERE pool = %(pool)s)),
       1

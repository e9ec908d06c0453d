-- Stores the starts of a queue with a rate.
INSERT INTO ojs_limited_queue (queue, starts) VALUES (%(queue)s, %(starts)s)
ON DUPLICATE KEY UPDATE starts = VALUES(starts)

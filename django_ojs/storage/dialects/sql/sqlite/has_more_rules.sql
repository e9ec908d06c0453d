-- Whether a queue has rules that the caller of a claim does not apply.
SELECT 1 FROM ojs_queue
WHERE name IN (%(queue)s, {all_queues}, {default_policy}) AND rules & ~%(applied)s

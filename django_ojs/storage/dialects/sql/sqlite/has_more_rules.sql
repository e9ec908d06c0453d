-- Whether a queue has rules that the caller of a claim does not apply, or a job that is open to one.
SELECT 1 WHERE EXISTS (
    SELECT 1 FROM ojs_queue
    WHERE name IN (%(queue)s, {all_queues}, {default_policy}) AND rules & ~%(applied)s
) OR (
    SELECT hold < 64 AND (1 << hold) & ~%(applied)s FROM ojs_job
    WHERE queue = %(queue)s AND state {before_fetch} AND hold > 0 ORDER BY hold LIMIT 1
)

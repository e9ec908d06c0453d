-- The best jobs of a queue that are open only to claims with a rule and whose key is not in `busy`, locked.
-- `try_lock` then locks the keys. A later statement counts how much of its limits a key uses, and must see what
-- was committed before it: a caller's transaction with one snapshot gets no such jobs.
SELECT id, priority, enqueued_at, coalesce(size_bytes, 0), hold, {limit_key},
       JSON_EXTRACT(options, '$.rate_limit'), false
FROM ojs_job FORCE INDEX (ojs_job_claim)
WHERE queue = %(queue)s AND state {before_fetch} AND hold BETWEEN 1 AND 63 {{isolation}}
  AND (expires_at IS NULL OR expires_at > {now})
  AND coalesce({limit_key} NOT IN %(busy)s, true) AND @@tx_isolation LIKE 'READ-%%'
  AND NOT EXISTS (SELECT 1 FROM ojs_queue WHERE name IN (%(queue)s, {all_queues}, {default_policy})
                                            AND paused_at IS NOT NULL)
ORDER BY hold, priority DESC, enqueued_at, id LIMIT %(limited)s FOR UPDATE SKIP LOCKED

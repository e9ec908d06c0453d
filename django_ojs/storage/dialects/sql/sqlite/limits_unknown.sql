-- Whether a queue has limits or turns that the statement of a plain claim does not check.
SELECT 1 FROM ojs_queue
WHERE name IN (%(queue)s, {all_queues}, {default_policy}) AND (has_limit_keys
      OR coalesce(config ->> '$.concurrency', config ->> '$.rate_limit', config ->> '$.tenant_fairness') IS NOT NULL)

-- The condition of a claim of chosen jobs: the queue has no rules that the caller does not apply.
AND NOT EXISTS (SELECT 1 FROM ojs_queue WHERE name IN (%s, {default_policy}) AND rules & ~%s)

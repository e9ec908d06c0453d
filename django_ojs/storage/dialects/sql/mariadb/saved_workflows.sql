-- When workflows started, and when they ended.
SELECT id, started_at, finished_at FROM ojs_workflow WHERE id IN %(keys)s

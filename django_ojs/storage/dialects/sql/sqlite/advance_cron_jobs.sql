-- Moves cron jobs on to their next occurrence: those whose `due_at` is still the one that was read.
UPDATE ojs_cron_job
SET due_at = g.value ->> 'next_due_at', next_run_at = g.value ->> 'next_run_at',
    missed_count = missed_count + (g.value ->> 'missed')
FROM json_each(%(rows)s) AS g
WHERE ojs_cron_job.name = g.value ->> 'name' AND due_at = g.value ->> 'due_at'
RETURNING ojs_cron_job.name

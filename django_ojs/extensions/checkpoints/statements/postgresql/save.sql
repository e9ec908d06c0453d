-- Replaces the checkpoint of a job, unless a later run has saved one.
INSERT INTO ojs_checkpoint AS c (job_id, run, sequence, state, created_at)
VALUES (%(job_id)s, %(run)s, 1, %(state)s, {now})
ON CONFLICT (job_id) DO UPDATE
SET run = excluded.run, sequence = c.sequence + 1, state = excluded.state,
    created_at = excluded.created_at
WHERE c.run <= excluded.run
RETURNING c.run, c.sequence, c.created_at

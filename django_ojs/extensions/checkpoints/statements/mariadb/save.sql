-- Replaces the checkpoint of a job, unless a later run has saved one. The returned `run` shows whose it is.
--
-- Each assignment sees the columns as set by those before it, so `run` is set last.
INSERT INTO ojs_checkpoint (job_id, run, sequence, state, created_at)
VALUES (%(job_id)s, %(run)s, 1, %(state)s, {now})
ON DUPLICATE KEY UPDATE
    sequence = CASE WHEN run <= VALUES(run) THEN sequence + 1 ELSE sequence END,
    state = CASE WHEN run <= VALUES(run) THEN VALUES(state) ELSE state END,
    created_at = CASE WHEN run <= VALUES(run) THEN VALUES(created_at) ELSE created_at END,
    run = CASE WHEN run <= VALUES(run) THEN VALUES(run) ELSE run END
RETURNING run, sequence, created_at

-- The row of a worker that claims jobs, locked against its removal until the claim is committed.
--
-- A rescue finds the jobs of a dead worker and then removes its row. A claim that the server
-- executes after the removal finds no row. If a claim began before, the rescue finds the row
-- locked, and is repeated later.
SELECT 1 FROM ojs_worker WHERE id = %(worker_id)s FOR KEY SHARE

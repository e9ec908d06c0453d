-- Stores any number of events, given as one JSON array. It is a SELECT, so that a worker's session
-- keeps its plan.
WITH added AS (
    INSERT INTO ojs_event (event_id, type, time, subject, queue, data)
    SELECT event_id, type, statement_timestamp(), subject, queue, data
    FROM json_to_recordset(%(events)s::json) AS (
        event_id uuid, type text, subject text, queue text, data jsonb)
)
SELECT 1

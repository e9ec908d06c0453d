-- Stores one event; the caller executes it for each.
INSERT INTO ojs_event (event_id, type, time, subject, queue, data)
VALUES (%(event_id)s, %(type)s, UTC_TIMESTAMP(6), %(subject)s, %(queue)s, %(data)s)

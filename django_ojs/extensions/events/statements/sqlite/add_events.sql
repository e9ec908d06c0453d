-- Stores any number of events, given as one JSON array.
INSERT INTO ojs_event (event_id, type, time, subject, queue, data)
SELECT replace(value ->> 'event_id', '-', ''), value ->> 'type', {now}, value ->> 'subject',
       value ->> 'queue', value -> 'data'
FROM json_each(%(events)s)

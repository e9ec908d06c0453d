-- The bounds of these queues: their ceilings in jobs and in bytes, and the bytes of a ticket.
SELECT queue, ceiling, ceiling_bytes, unit FROM ojs_bound WHERE queue IN %(queues)s

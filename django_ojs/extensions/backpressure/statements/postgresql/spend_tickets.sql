-- Takes the tickets for the jobs that were added under the queue lock, and makes the next tickets valid,
-- as many as there is room for.
--
-- No ticket becomes valid if the bound has another version: then its configuration has changed since,
-- and the jobs have not been counted under the new bound yet.
WITH paid AS MATERIALIZED (
    SELECT ojs_spend(slot, %(cost)s) AS last FROM ojs_bound WHERE queue = %(queue)s
)
UPDATE ojs_bound AS b SET since = paid.last, until = paid.last + %(room)s FROM paid
WHERE b.queue = %(queue)s AND b.xmin = %(version)s::xid

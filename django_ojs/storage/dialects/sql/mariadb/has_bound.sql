-- Whether any of these queues has a bound, or the default policy.
SELECT EXISTS (SELECT 1 FROM ojs_bound
               WHERE queue IN %(queues)s AND (ceiling IS NOT NULL OR ceiling_bytes IS NOT NULL))

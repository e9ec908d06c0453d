-- Whether a cron job is due for so many seconds, or a run of one is held.
SELECT coalesce(
           (SELECT min(due_at) FROM ojs_cron_job WHERE due_at IS NOT NULL)
               <= {now} - INTERVAL %(since)s * 1000000 MICROSECOND,
           FALSE)
       OR EXISTS (SELECT 1 FROM ojs_cron_run WHERE phase = 'held')

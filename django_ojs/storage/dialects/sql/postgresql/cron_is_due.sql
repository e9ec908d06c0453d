-- Whether a cron job is due for so many seconds, or a run of one is held.
SELECT coalesce(
           (SELECT min(due_at) FROM ojs_cron_job WHERE due_at IS NOT NULL)
               <= statement_timestamp() - %(since)s * interval '1 second',
           false)
       OR EXISTS (SELECT FROM ojs_cron_run WHERE phase = 'held')

-- Workers that sent nothing for too long: as dead_workers.sql, where no session proves anything.
SELECT id FROM ojs_worker
WHERE seen_at <= statement_timestamp() - dead_after_ms * interval '1 millisecond'
      - CASE WHEN seen_at < statement_timestamp() - %(back_for)s * interval '1 second'
             THEN %(away)s ELSE 0 END * interval '1 second'

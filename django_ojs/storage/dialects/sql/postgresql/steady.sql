-- Whether some worker's heartbeats have been stored until now, for at least {{beat_ms}}, and for two of
-- its intervals or five seconds, whichever is shorter: a live worker tries again sooner.
EXISTS (
    SELECT 1 FROM ojs_worker AS witness
    WHERE witness.seen_at > statement_timestamp() - 1.5 * witness.beat_interval_ms * interval '1 millisecond'
      AND witness.steady_since <= statement_timestamp()
          - greatest({{beat_ms}}, least(2 * witness.beat_interval_ms, 5000)) * interval '1 millisecond')

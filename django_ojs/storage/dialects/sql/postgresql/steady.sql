-- Whether a worker's heartbeats are stored, and have been so for two of its intervals and for {{beat_ms}}.
EXISTS (
    SELECT 1 FROM ojs_worker AS witness
    WHERE witness.seen_at > statement_timestamp() - 1.5 * witness.beat_interval_ms * interval '1 millisecond'
      AND witness.steady_since <= statement_timestamp()
          - greatest({{beat_ms}}, 2 * witness.beat_interval_ms) * interval '1 millisecond')

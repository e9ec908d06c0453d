-- Whether some worker's heartbeats have been stored without a gap for {{beat_ms}}, and for two of its
-- intervals or five seconds, whichever is less: a live worker tries again sooner.
EXISTS (
    SELECT 1 FROM ojs_worker AS witness
    WHERE witness.seen_at > {now} - INTERVAL 1500 * witness.beat_interval_ms MICROSECOND
      AND witness.steady_since <= {now}
          - INTERVAL 1000 * greatest({{beat_ms}}, least(2 * witness.beat_interval_ms, 5000)) MICROSECOND)

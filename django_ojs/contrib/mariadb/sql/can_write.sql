-- Whether the session may write; that of a replica may not.
SELECT NOT (@@global.read_only OR @@tx_read_only)

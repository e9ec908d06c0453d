-- Whether the session may write; a session on a replica may not.
SELECT NOT (@@global.read_only OR @@tx_read_only)

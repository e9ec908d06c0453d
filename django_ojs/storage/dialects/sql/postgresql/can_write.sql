-- Whether the session may write; that of a replica may not.
SELECT current_setting('transaction_read_only') = 'off'

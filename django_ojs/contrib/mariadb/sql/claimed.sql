-- The jobs that this transaction has made active: an UPDATE does not return them.
SELECT {claimed_columns} FROM ojs_job FORCE INDEX (PRIMARY) WHERE id IN %(keys)s AND state {before_ack}

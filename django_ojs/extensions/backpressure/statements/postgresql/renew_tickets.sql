-- Makes new tickets valid when the last one is used: ojs_admit does this for a transaction that
-- consists of one statement, and one ticket is used for it.
SELECT ojs_admit(%s, 1, 0, true)

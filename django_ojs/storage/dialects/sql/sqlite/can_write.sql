-- Whether the session may write: a file has no replica.
SELECT 1

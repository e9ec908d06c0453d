-- Triggers write the counts themselves.
SELECT 0

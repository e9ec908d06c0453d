-- Deletes changes that were folded into the counts, which the caller has locked.
DELETE FROM ojs_count_change WHERE id IN %(ids)s

-- Whether there are changes that were not added to the counts.
SELECT EXISTS (SELECT 1 FROM ojs_count_change)

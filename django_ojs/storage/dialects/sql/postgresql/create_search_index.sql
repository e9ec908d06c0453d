-- Only containment is searched for: this class has one entry for each value with its path.
CREATE INDEX CONCURRENTLY {index} ON ojs_job USING gin ({column} jsonb_path_ops)

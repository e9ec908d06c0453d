-- Whether the connection may write: it may be set to read only.
SELECT query_only = 0 FROM pragma_query_only

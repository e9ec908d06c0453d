-- Whether the connection only reads: 1 or 0.
PRAGMA query_only

-- Whether the connection was told to read only: 1 or 0.
PRAGMA query_only

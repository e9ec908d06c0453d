"""The database of the jobs; `dialects` has what differs between kinds of databases."""

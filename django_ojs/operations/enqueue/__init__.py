"""The steps of an enqueue: admission, lineage, uniqueness; its database and its result."""

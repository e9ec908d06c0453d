"""The steps of an enqueue: admission, lineage, uniqueness; and the outbox."""

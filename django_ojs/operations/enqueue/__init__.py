"""The steps of an enqueue: admission, routing, uniqueness, outbox. `push` runs them."""

"""API keys, limits for callers over HTTP, and the operator of a change."""

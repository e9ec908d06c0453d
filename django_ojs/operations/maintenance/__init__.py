"""Periodic work: promotion, expiry, rescue, timeouts, pruning."""

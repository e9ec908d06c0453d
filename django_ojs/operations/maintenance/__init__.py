"""Periodic work: timeouts, stalled progress, pruning; its lease; and maintenance mode."""

"""Figures of queues and types, for charts and alerts."""

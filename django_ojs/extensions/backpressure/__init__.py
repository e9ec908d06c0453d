"""Bounds of queues (ojs-backpressure)."""

"""Bounded queues (ojs-backpressure): admission to a queue, refusals, pressure."""

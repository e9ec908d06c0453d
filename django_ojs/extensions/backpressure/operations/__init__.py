"""Bounded queues (ojs-backpressure): admission to a queue, rejections, pressure."""

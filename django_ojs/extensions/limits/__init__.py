"""Limits by queue and by key (ojs-rate-limiting)."""

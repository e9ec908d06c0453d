"""Registered workers: listing, directing, removal, and the rescue of their jobs."""

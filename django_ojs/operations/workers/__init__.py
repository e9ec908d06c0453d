"""Registered workers: listing, directing, removal."""

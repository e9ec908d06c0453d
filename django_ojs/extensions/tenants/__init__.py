"""Tenants of a queue: bounds and turns."""

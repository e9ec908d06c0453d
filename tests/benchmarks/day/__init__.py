"""A day of a large site, compressed in time."""

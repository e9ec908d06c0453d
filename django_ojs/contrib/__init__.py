"""Ready-made middleware for common needs."""

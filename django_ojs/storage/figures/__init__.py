"""Counts and rollups: figures that cost no scan of the jobs table."""

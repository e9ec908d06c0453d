"""Counts and other figures that cost no scan of the jobs table."""

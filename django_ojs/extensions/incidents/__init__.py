"""Incidents: a finding that hurts is kept in a row while it lasts, and an hour after its end."""

"""References to payloads outside of the database (ojs-payload-limits)."""

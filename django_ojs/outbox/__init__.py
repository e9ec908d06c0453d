"""The relay: sends the jobs of the outbox to their servers (ojs-framework-adapters §6.4)."""

"""The relay: sends the jobs of the outbox on (ojs-framework-adapters §6.4)."""

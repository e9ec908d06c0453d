"""The audit trail: who did what, to which object."""

"""Webhooks (ojs-webhooks)."""

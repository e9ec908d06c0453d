"""Webhooks: subscriptions to events, and their deliveries (ojs-webhooks)."""

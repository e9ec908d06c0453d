"""The sending of webhooks, over HTTP."""

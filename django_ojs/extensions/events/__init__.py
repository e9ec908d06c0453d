"""Events: what happened, for streams, webhooks and histories."""

"""Turn a relay until it has nothing to do, and let its waits pass at once."""

from __future__ import annotations

from django_ojs.models import OutboxEntry
from django_ojs.outbox.relay import Relay


def run(relay: Relay) -> None:
    """Turn until it has to wait, or has nothing."""
    while not relay.turn():
        pass


def let_time_pass(relay: Relay, using: str = "default") -> None:
    """End the wait of a relay and of its jobs, as its clock would."""
    relay.breaker._until = 0.0
    OutboxEntry.objects.using(using).update(next_try_at=None)

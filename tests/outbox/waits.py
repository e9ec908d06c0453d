"""Give a relay work, turn it until it has nothing to do, and let its waits pass at once."""

from __future__ import annotations

from typing import Any

import django_ojs as ojs
from django_ojs.extensions.outbox.models import OutboxEntry
from django_ojs.extensions.outbox.relay import Relay
from django_ojs.spec import ids


def run(relay: Relay) -> None:
    """Turn until it has to wait, or has nothing."""
    while not relay.send_next():
        pass


def let_time_pass(relay: Relay, using: str = "default") -> None:
    """End the wait of a relay and of its jobs, as its clock would."""
    relay.breaker.retry_at = 0.0
    OutboxEntry.objects.using(using).update(next_try_at=None)


def enqueue(number: int, first: int = 0, **options: Any) -> list[str]:
    """Enqueue jobs whose ids go against their order."""
    keys = list(reversed(ids.many(number)))
    for index, key in enumerate(keys):
        ojs.enqueue("test.job", [first + index], **{"queue": "remote-a", "id": key, **options})
    return [str(key) for key in keys]


def states() -> list[str]:
    return list(OutboxEntry.objects.order_by("id").values_list("state", flat=True))

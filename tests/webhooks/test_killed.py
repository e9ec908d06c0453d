"""A worker dies in the middle of deliveries: none is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from django_ojs.extensions.webhooks import spec as webhooks
from django_ojs.hooks import publish
from django_ojs.spec.published import EventType, of_queue
from tests.model_factories import SubscriptionFactory
from tests.webhooks.conftest import LOOPBACK, Receiver
from tests.worker.processes import Tree
from tests.worker.waiting import eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]


@pytest.mark.requirement("EV-S07")
def test_a_worker_that_is_killed_loses_no_delivery(
    process_environment: dict[str, str], tmp_path: Path, receiver: Receiver, loopback: None
) -> None:
    SubscriptionFactory(url=receiver.url, events=["queue.*"])
    names = [f"q{number}" for number in range(20)]
    receiver.open.clear()
    first = Tree(process_environment, tmp_path / "first", "--queues", webhooks.QUEUE, ojs=LOOPBACK)
    try:
        for name in names:
            publish(EventType.QUEUE_PAUSED, of_queue, name)
        eventually(lambda: receiver.received, "a delivery is being sent")
    finally:
        first.kill()
    receiver.open.set()
    second = Tree(
        process_environment, tmp_path / "second", "--queues", webhooks.QUEUE, ojs=LOOPBACK
    )
    try:
        eventually(lambda: set(receiver.subjects) == set(names), "each event arrives")
    finally:
        second.kill()
        second.forgotten()
    ids = {each.headers["X-OJS-Delivery-ID"]: each.event["id"] for each in receiver.received}
    # What was sent twice has the same id: an event is one delivery.
    assert len(ids) == len(set(ids.values())) == len(names)

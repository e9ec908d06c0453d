"""What fills the lists of which tests turn the pages."""

from __future__ import annotations

from django_ojs.extensions.cron import operations as cron
from django_ojs.extensions.cron.operations import Definition
from django_ojs.extensions.webhooks.models import WebhookDelivery
from django_ojs.extensions.webhooks.operations import subscriptions
from django_ojs.extensions.webhooks.operations.subscriptions import Subscription
from django_ojs.models import BulkOperation
from django_ojs.spec import ids
from tests.factories import in_state, push

#: Rows of each list: three pages of two, the last of which has one.
ROWS = 5


def queues() -> None:
    for number in range(ROWS):
        push(queue=f"q{number}")


def cron_jobs() -> None:
    for number in range(ROWS):
        template = {"type": "a.b", "args": []}
        cron.register(Definition(name=f"cron-{number}", expression="@daily", template=template))


def dead_letters() -> None:
    for number in range(ROWS):
        in_state("discarded", queue=f"q{number}")


def webhooks() -> None:
    for number in range(ROWS):
        url = f"https://hooks.test/{number}"
        subscriptions.create(Subscription(url=url, events=["queue.paused"]))


def deliveries() -> None:
    webhook, _ = subscriptions.create(Subscription(url="https://hooks.test", events=["*"]))
    for _ in range(ROWS):
        keys = {"id": ids.uuid7(), "event_id": ids.uuid7()}
        WebhookDelivery(webhook=webhook, event_type="queue.paused", **keys).save()


def bulk_operations() -> None:
    for _ in range(ROWS):
        BulkOperation(action="retry", filter={}, ordered_by="ann").save()

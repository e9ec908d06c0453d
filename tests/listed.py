"""What fills the lists of which tests turn the pages."""

from __future__ import annotations

from tests.factories import in_state, push
from tests.model_factories import BulkOperationFactory, SubscriptionFactory, WebhookDeliveryFactory
from tests.operations.cron.scenes import register

#: Rows of each list: three pages of two, the last of which has one.
ROWS = 5


def queues() -> None:
    for number in range(ROWS):
        push(queue=f"q{number}")


def cron_jobs() -> None:
    for number in range(ROWS):
        register(f"cron-{number}")


def dead_letters() -> None:
    for number in range(ROWS):
        in_state("discarded", queue=f"q{number}")


def webhooks() -> None:
    for number in range(ROWS):
        SubscriptionFactory(url=f"https://hooks.test/{number}", events=["queue.paused"])


def deliveries() -> None:
    webhook, _ = SubscriptionFactory()
    WebhookDeliveryFactory.create_batch(ROWS, webhook=webhook)


def bulk_operations() -> None:
    BulkOperationFactory.create_batch(ROWS)

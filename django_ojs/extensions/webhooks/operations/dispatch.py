"""Dispatch: read the log of events for each webhook, and enqueue a job for each delivery.

A webhook has a cursor in the log, which has the order of the commits. The jobs of its deliveries
are stored in the transaction that moves the cursor: an event is delivered by one job, and a process
that dies has done neither or both.
"""

import logging
import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Now

from django_ojs.conf import of
from django_ojs.extensions.events.operations import log
from django_ojs.extensions.events.settings import EventSettings
from django_ojs.extensions.events.spec import parse_event_id
from django_ojs.extensions.webhooks import spec as webhooks
from django_ojs.extensions.webhooks.models import Webhook, WebhookDelivery
from django_ojs.models import Job
from django_ojs.operations.push import PushOptions, push_batch
from django_ojs.spec.envelope import Envelope
from django_ojs.spec.errors import QueueFull, QueuePaused
from django_ojs.storage import database, raw_queries

logger = logging.getLogger("django_ojs")

#: Events that are read for a webhook in one transaction.
BATCH = 100
#: Seconds after which a pass begins no other webhook.
MAX_SECONDS = 0.5

_TIMEOUT_MS = 2 * int(webhooks.TIMEOUT * 1000)
# The middleware and the outbox of the project are for the project's own jobs.
_OPTIONS = PushOptions(batch=True, generated_ids=True, admitted=True)


class WebhookDispatcher:
    """Enqueues deliveries of new events. A pass is bounded; the next one goes on where it ended."""

    def __init__(self) -> None:
        self._last: UUID | None = None
        self._waiting: set[UUID] = set()

    def dispatch(self) -> int:
        """Return how many events were read for webhooks."""
        # Most sites have no webhooks, and then the log is not read.
        if not raw_queries.holds(active_condition()):
            return 0
        active = Webhook.primary.filter(active=True)
        behind = active.filter(cursor__lt=log.latest())
        keys = sorted(behind.values_list("pk", flat=True))
        last = self._last
        if last is not None:
            keys.sort(key=lambda key: key <= last)
        total, until = 0, time.monotonic() + MAX_SECONDS
        for key in keys:
            self._last = key
            try:
                total += self._dispatch(key)
            except Exception as error:
                if database.is_unavailable(error):
                    raise
                logger.error(
                    "The events for the webhook %s were not dispatched.",
                    key,
                    exc_info=database.without_values(error),
                )
            if time.monotonic() >= until:
                break
        return total

    def _dispatch(self, key: UUID) -> int:
        limit, until = BATCH, "has room"
        while limit:
            try:
                moved = _in_transaction(key, limit)
            except QueueFull:
                # The bound of the queue may be below a batch.
                limit //= 2
            except QueuePaused:
                limit, until = 0, "is resumed: it is draining"
            else:
                self._waiting.discard(key)
                return moved
        # This is logged once, and not with each pass.
        if key not in self._waiting:
            self._waiting.add(key)
            logger.warning(
                "Events for the webhook %s wait until the queue %s %s.", key, webhooks.QUEUE, until
            )
        return 0


def active_condition() -> str:
    """Return the SQL condition that there is a webhook to dispatch events to."""
    return raw_queries.condition(Webhook, "active")


def dispatch() -> int:
    """Make one pass. Return how many events were read for webhooks."""
    return WebhookDispatcher().dispatch()


@database.write_transaction
def _in_transaction(key: UUID, limit: int) -> int:
    rows = Webhook.primary.select_for_update(skip_locked=True).filter(pk=key, active=True)
    webhook = rows.first()
    if webhook is None:  # Another process has it, or it was removed or disabled.
        return 0
    page = log.read(
        types=webhook.events,
        queues=webhook.queues or None,
        job_types=webhook.job_types or None,
        after=str(webhook.cursor),
        limit=limit,
    )
    events = [event for event in page.events if event["data"].get("queue") != webhooks.QUEUE]
    if events:
        enqueue(webhook, events)
    rows.update(cursor=int(page.cursor))
    return len(page.events) or int(int(page.cursor) != webhook.cursor)


def enqueue(webhook: Webhook, events: Sequence[dict[str, Any]]) -> list[UUID]:
    """Store a job for the delivery of each event. Raises QueueFull, QueuePaused."""
    envelopes = [
        Envelope(
            type=webhooks.JOB_TYPE,
            queue=webhooks.QUEUE,
            args=[str(webhook.pk), event],
            retry=webhooks.RETRY,
            timeout_ms=_TIMEOUT_MS,
        )
        for event in events
    ]
    keys = [job.id for job in push_batch(envelopes, _OPTIONS)]
    WebhookDelivery.primary.bulk_create(
        [
            WebhookDelivery(
                id=key,
                webhook=webhook,
                event_id=parse_event_id(event["id"], "id"),
                event_type=event["type"],
            )
            for key, event in zip(keys, events, strict=True)
        ]
    )
    return keys


def prune() -> int:
    """Delete the records of deliveries that are older than the events that are kept.

    The records of jobs that may still run stay, because a job without its record sends nothing.
    """
    may_run = Q(finished_at=None) | Q(dead_letter=True)
    old = WebhookDelivery.primary.filter(
        ~Exists(Job.primary.filter(may_run, pk=OuterRef("pk"))),
        created_at__lt=Now() - of(EventSettings).keep_events_for,
    )
    return database.delete_free(old.order_by("created_at"))

"""Deliveries: what became of each event that was sent to a webhook (ojs-webhooks §7, §10)."""

import logging
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from django.db.models import F, QuerySet
from django.db.models.functions import Now

from django_ojs.extensions.webhooks import spec as webhooks
from django_ojs.extensions.webhooks.models import Webhook, WebhookDelivery
from django_ojs.extensions.webhooks.operations import subscriptions
from django_ojs.models import Job
from django_ojs.operations import keyset
from django_ojs.operations.cancel import cancel
from django_ojs.operations.keyset import Page, PageRequest
from django_ojs.operations.retry import retry as retry_job
from django_ojs.spec.errors import Conflict, JobNotFound, NotFound
from django_ojs.spec.states import TERMINAL, State

logger = logging.getLogger("django_ojs")


class DeliveryStatus(StrEnum):
    """The status of a delivery."""

    PENDING = "pending"
    #: An attempt failed, and there will be another one.
    FAILED = "failed"
    DELIVERED = "delivered"
    #: There will be no other attempt.
    DEAD = "dead"
    #: Its job has been deleted since.
    DELETED = "deleted"


@dataclass(frozen=True, kw_only=True, slots=True)
class DeliveryWithJob:
    """A delivery with its job, which is None once the job is pruned."""

    row: WebhookDelivery
    job: Job | None

    @property
    def status(self) -> DeliveryStatus:
        if self.job is None:
            return DeliveryStatus.DELETED
        match self.job.state:
            case State.COMPLETED:
                return DeliveryStatus.DELIVERED
            case State.DISCARDED | State.CANCELLED:
                return DeliveryStatus.DEAD
        return DeliveryStatus.FAILED if self.job.error else DeliveryStatus.PENDING

    @property
    def error(self) -> dict[str, Any] | None:
        """The error of the latest attempt."""
        return None if self.job is None else self.job.error


def latest(webhook: UUID | None = None, *, limit: int = 50) -> list[DeliveryWithJob]:
    """Return the latest deliveries, newest first: of a webhook, or of all."""
    return page(PageRequest(limit=limit), webhook).rows


def page(
    wanted: PageRequest,
    webhook: UUID | None = None,
    *,
    within: Collection[str] | None = None,
) -> Page[DeliveryWithJob]:
    """Return a page of deliveries, newest first: of a webhook, or of all that a caller may see."""
    found = keyset.page(_rows(webhook, within), {"-pk": UUID}, wanted)
    return found.showing(_with_jobs(found.rows))


def _rows(webhook: UUID | None, within: Collection[str] | None) -> QuerySet[WebhookDelivery]:
    if webhook is not None:
        keys = [subscriptions.get(webhook, within).pk]
    else:
        keys = [each.pk for each in subscriptions.all_webhooks(within)]
    return WebhookDelivery.primary.filter(webhook__in=keys)


def get(key: UUID, within: Collection[str] | None = None) -> DeliveryWithJob:
    """Return a delivery. Raises NotFound, also for one that the caller may not see."""
    row = WebhookDelivery.primary.filter(pk=key).first()
    if row is None:
        raise _not_found()
    try:
        subscriptions.get(row.webhook_id, within)
    except NotFound:
        raise _not_found() from None
    return _with_jobs([row])[0]


def retry(key: UUID, within: Collection[str] | None = None) -> DeliveryWithJob:
    """Send a dead delivery again. Raises NotFound, Conflict for one that is not dead."""
    found = get(key, within)
    retry_job(found.row.pk)
    return get(key)


def succeeded(webhook: Webhook) -> None:
    """End the failures in a row, after a delivery that succeeded."""
    # The condition is on the stored number, not on the one that was read: other deliveries may have
    # failed while this one waited.
    Webhook.primary.filter(pk=webhook.pk, failures__gt=0).update(failures=0)


def died(webhook: Webhook) -> None:
    """Count a delivery without success. DISABLED_AFTER in a row disable the webhook."""
    rows = Webhook.primary.filter(pk=webhook.pk)
    rows.update(failures=F("failures") + 1)
    disabled = rows.filter(active=True, failures__gte=webhooks.DISABLED_AFTER).update(
        active=False, disabled_at=Now()
    )
    if disabled:
        logger.warning(
            "The webhook %s is disabled: its last %d deliveries failed.",
            webhook.pk,
            webhooks.DISABLED_AFTER,
        )


def _with_jobs(rows: list[WebhookDelivery]) -> list[DeliveryWithJob]:
    jobs = Job.primary.in_bulk([row.pk for row in rows])
    return [DeliveryWithJob(row=row, job=jobs.get(row.pk)) for row in rows]


def _not_found() -> NotFound:
    return NotFound("There is no delivery with this id.", details={"resource_type": "delivery"})


def cancel_all() -> None:
    """Cancel the deliveries that have not ended, because nothing delivers them any more."""
    jobs = Job.primary.filter(type=webhooks.JOB_TYPE).exclude(state__in=sorted(TERMINAL))
    for key in jobs.values_list("pk", flat=True):
        with suppress(Conflict, JobNotFound):  # It has ended since.
            cancel(key)

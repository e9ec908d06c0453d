"""The handler of deliveries. django_ojs imports the module `jobs` of every app."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from django_ojs.context import JobContext
from django_ojs.extensions.webhooks import spec as webhooks
from django_ojs.extensions.webhooks.models import Webhook, WebhookDelivery
from django_ojs.handlers import job
from django_ojs.spec.failure import DeadLetter, Discard, Retry


@job(webhooks.JOB_TYPE, queue=webhooks.QUEUE, retry=webhooks.RETRY)
def deliver_webhook(context: JobContext, subscription: str, event: dict[str, Any]) -> Any:
    """Deliver an event to a webhook (ojs-webhooks §7)."""
    # Every process imports this module, but only a worker needs these two.
    from django_ojs.extensions.webhooks import sending
    from django_ojs.extensions.webhooks.operations import deliveries

    webhook = _webhook_of(context.job.id, subscription, event)
    if webhook is None or not webhook.active:
        raise Discard("the webhook was removed or is not active, or the job is not a delivery")
    outcome = sending.send(webhook, event, context.job.id)
    if outcome.success:
        deliveries.succeeded(webhook)
        return {"status_code": outcome.status, "response_time_ms": outcome.milliseconds}
    if outcome.is_final or context.job.spent >= webhooks.MAX_ATTEMPTS:
        deliveries.died(webhook)
        raise DeadLetter(outcome.reason)
    delay = webhooks.DELAYS[context.job.spent - 1]
    if outcome.retry_after is not None:
        delay = min(max(delay, timedelta(seconds=outcome.retry_after)), webhooks.DELAYS[-1])
    raise Retry(outcome.reason, delay=delay)


def _webhook_of(job_id: UUID, subscription: str, event: dict[str, Any]) -> Webhook | None:
    # A producer could push a job of this type with an event of its own, which would be signed.
    delivery = WebhookDelivery.primary.select_related("webhook").filter(pk=job_id).first()
    if delivery is None or str(delivery.webhook_id) != subscription:
        return None
    given = (event.get("id"), event.get("type"))
    return delivery.webhook if given == (f"evt_{delivery.event_id}", delivery.event_type) else None

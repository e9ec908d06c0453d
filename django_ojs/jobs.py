"""The handlers of this package's own jobs. The app imports them, as those of every app."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from django_ojs.context import JobContext
from django_ojs.handlers import job
from django_ojs.models import Webhook
from django_ojs.operations.webhooks import deliveries
from django_ojs.spec import webhooks
from django_ojs.spec.failure import DeadLetter, Discard, Retry
from django_ojs.webhooks import sending


@job(webhooks.JOB_TYPE, queue=webhooks.QUEUE, retry=webhooks.RETRY)
def deliver_webhook(context: JobContext, subscription: str, event: dict[str, Any]) -> Any:
    """Deliver an event to a webhook (ojs-webhooks §7)."""
    webhook = Webhook.primary.filter(pk=UUID(subscription)).first()
    if webhook is None or not webhook.active:
        raise Discard("the webhook was removed or is not active")
    outcome = sending.send(webhook, event, context.job.id)
    if outcome.success:
        deliveries.succeeded(webhook)
        return {"status_code": outcome.status, "response_time_ms": outcome.milliseconds}
    if outcome.is_final or context.attempt >= webhooks.MAX_ATTEMPTS:
        deliveries.died(webhook)
        raise DeadLetter(outcome.reason)
    delay = webhooks.DELAYS[context.attempt - 1]
    if outcome.retry_after is not None:
        delay = min(max(delay, timedelta(seconds=outcome.retry_after)), webhooks.DELAYS[-1])
    raise Retry(outcome.reason, delay=delay)

"""Webhooks: subscriptions and deliveries (ojs-webhooks §6, §10)."""

from functools import partial
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse

from django_ojs.extensions.webhooks import sending
from django_ojs.extensions.webhooks import spec as webhooks
from django_ojs.extensions.webhooks.models import Webhook
from django_ojs.extensions.webhooks.operations import deliveries, subscriptions
from django_ojs.extensions.webhooks.operations.deliveries import DeliveryWithJob
from django_ojs.extensions.webhooks.operations.subscriptions import Subscription
from django_ojs.http import fields, long_poll, pagination
from django_ojs.http.responses import json_response, timestamps
from django_ojs.http.views.base import OJSView
from django_ojs.operations import keyset
from django_ojs.spec import ids, json
from django_ojs.spec.errors import InvalidRequest, NotFound, RateLimited
from django_ojs.spec.scopes import Scope

MAX_METADATA_BYTES = 16 * 1024
_FILTER = frozenset({"queues", "job_types"})


class WebhookView(OJSView):
    """The base class. A caller that is limited to some queues sees only the webhooks for these."""

    def find(self, key: str) -> Webhook:
        """Return a webhook. Raises NotFound."""
        wanted = _uuid(key, webhooks.SUBSCRIPTION_PREFIX, "webhook")
        return subscriptions.get(wanted, self.access.queues)

    def read(self) -> Subscription:
        """Read the body of POST and PATCH. Raises InvalidRequest, PermissionDenied."""
        data = self.body()
        events = fields.strings(data, "events")
        which = fields.object_(data, "filter")
        queues = job_types = None
        if which is not None:
            # With an unknown member, the webhook would get events that the client wanted to leave
            # out.
            if not which.keys() <= _FILTER:
                raise InvalidRequest.of("filter", "must have no members but queues and job_types")
            queues = fields.strings(which, "queues") or []
            job_types = fields.strings(which, "job_types") or []
        metadata = fields.object_(data, "metadata")
        if metadata is not None and len(json.dumps(metadata).encode()) > MAX_METADATA_BYTES:
            raise InvalidRequest.of("metadata", f"must be at most {MAX_METADATA_BYTES} bytes")
        for queue in queues or ():
            self.access.check_queue(queue)
        active = data.get("active")
        return Subscription(
            url=fields.string(data, "url"),
            events=events,
            queues=queues,
            job_types=job_types,
            metadata=metadata,
            active=None if active is None else fields.boolean(data, "active"),
        )


class Subscriptions(WebhookView):
    """List the webhooks (§6.2), and create one (§6.1)."""

    needs = {"GET": Scope.OPERATOR, "POST": Scope.ADMIN}

    def get(self, request: HttpRequest) -> dict[str, Any]:
        all_webhooks = subscriptions.all_webhooks(self.access.queues)
        read = partial(keyset.page_of_all, all_webhooks, {"pk": UUID})
        found = pagination.listed(request.GET, "subscriptions", read, _render)
        return {**found, "count": len(found["subscriptions"])}

    def post(self, request: HttpRequest) -> HttpResponse:
        """Create a webhook. No later response repeats its secret."""
        given = self.read()
        if not given.queues:
            self.access.check_all_queues()
        webhook, secret = subscriptions.create(given)
        shown = _render(webhook)
        location = {"Location": f"{request.path}/{shown['id']}"}
        return json_response(_wrapped({**shown, "secret": secret}), 201, location)


class SubscriptionDetail(WebhookView):
    """One webhook (§6.3 to §6.5)."""

    needs = {"GET": Scope.OPERATOR, "PATCH": Scope.ADMIN, "DELETE": Scope.ADMIN}

    def get(self, request: HttpRequest, key: str) -> dict[str, Any]:
        return _wrapped(_render(self.find(key)))

    def patch(self, request: HttpRequest, key: str) -> dict[str, Any]:
        webhook = self.find(key)
        given = self.read()
        if given.queues is not None and not given.queues:
            self.access.check_all_queues()
        return _wrapped(_render(subscriptions.update(webhook.pk, given)))

    def delete(self, request: HttpRequest, key: str) -> dict[str, Any]:
        webhook = self.find(key)
        shown = _render(webhook)
        subscriptions.remove(webhook.pk)
        return {"deleted": True, "id": shown["id"]}


class SubscriptionTest(WebhookView):
    """Send the event `webhook.test`, and wait for the response (§6.6)."""

    needs = {"POST": Scope.ADMIN}

    def post(self, request: HttpRequest, key: str) -> dict[str, Any]:
        webhook = self.find(key)
        with long_poll.slot() as may_wait:
            if not may_wait:
                raise RateLimited("This process has as many waiting requests as it may have.")
            outcome = sending.send_test(webhook)
        out: dict[str, Any] = {
            "success": outcome.success,
            "response_time_ms": outcome.milliseconds,
            "response_body": outcome.body,
        }
        if outcome.status:
            out["status_code"] = outcome.status
        if outcome.reason:
            out["error"] = outcome.reason
        return out


class SubscriptionSecret(WebhookView):
    """Make a new secret; for a day, deliveries are signed with the former one too (§8.3)."""

    needs = {"POST": Scope.ADMIN}

    def post(self, request: HttpRequest, key: str) -> dict[str, Any]:
        webhook, secret = subscriptions.rotate_secret(self.find(key).pk)
        return _wrapped({**_render(webhook), "secret": secret})


class Deliveries(WebhookView):
    """The latest deliveries, newest first (§10)."""

    needs = {"GET": Scope.OPERATOR}

    def get(self, request: HttpRequest) -> dict[str, Any]:
        query = request.GET
        of = query.get("subscription_id")
        webhook = self.find(of).pk if of else None
        read = partial(deliveries.page, webhook=webhook, within=self.access.queues)
        return pagination.listed(query, "deliveries", read, _render_delivery)


class DeliveryView(WebhookView):
    def delivery_id(self, key: str) -> UUID:
        return _uuid(key, webhooks.DELIVERY_PREFIX, "delivery")


class DeliveryDetail(DeliveryView):
    """One delivery."""

    needs = {"GET": Scope.OPERATOR}

    def get(self, request: HttpRequest, key: str) -> dict[str, Any]:
        return _render_delivery(deliveries.get(self.delivery_id(key), self.access.queues))


class DeliveryRetry(DeliveryView):
    """Send a dead delivery again."""

    needs = {"POST": Scope.OPERATOR}

    def post(self, request: HttpRequest, key: str) -> dict[str, Any]:
        return _render_delivery(deliveries.retry(self.delivery_id(key), self.access.queues))


def _wrapped(shown: dict[str, Any]) -> dict[str, Any]:
    """Return a webhook as the specification has it, and again where some clients look for it."""
    return {**shown, "subscription": shown}


def _uuid(key: str, prefix: str, resource: str) -> UUID:
    try:
        return ids.parse_id(key.removeprefix(prefix))
    except InvalidRequest:
        raise NotFound(
            f"There is no {resource} with this id.", details={"resource_type": resource}
        ) from None


def _render(webhook: Webhook) -> dict[str, Any]:
    """Return a webhook, without its secret."""
    out: dict[str, Any] = {
        "id": f"{webhooks.SUBSCRIPTION_PREFIX}{webhook.pk}",
        "url": webhook.url,
        "events": webhook.events,
        "active": webhook.active,
        "metadata": webhook.metadata,
        "failures": webhook.failures,
        **timestamps(created_at=webhook.created_at, disabled_at=webhook.disabled_at),
    }
    which = {"queues": webhook.queues, "job_types": webhook.job_types}
    if any(which.values()):
        out["filter"] = {name: names for name, names in which.items() if names}
    return out


def _render_delivery(delivery: DeliveryWithJob) -> dict[str, Any]:
    row, job = delivery.row, delivery.job
    out: dict[str, Any] = {
        "id": f"{webhooks.DELIVERY_PREFIX}{row.pk}",
        "subscription_id": f"{webhooks.SUBSCRIPTION_PREFIX}{row.webhook_id}",
        "event_id": f"evt_{row.event_id}",
        "event_type": row.event_type,
        "status": delivery.status,
        **timestamps(created_at=row.created_at),
    }
    if job is None:
        return out
    out |= {"job_id": str(job.pk), "attempts": job.attempt}
    if delivery.error is not None:
        out["error"] = delivery.error.get("message", "")
    if isinstance(job.result, dict):
        out |= job.result
    return out | timestamps(
        delivered_at=job.finished_at if delivery.status == "delivered" else None,
        next_attempt_at=job.due_at if delivery.status == "failed" else None,
    )

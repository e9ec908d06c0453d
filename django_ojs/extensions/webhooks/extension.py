"""Webhooks: enqueue the deliveries of new events, and delete old records of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.db.models import Model

from django_ojs.extension import Declared, DueStep, Extension
from django_ojs.extensions.webhooks.settings import WebhookSettings

if TYPE_CHECKING:
    from django_ojs.finding import Finding


class WebhooksExtension(Extension):
    """Delivers events."""

    name = "webhooks"
    number = 17
    settings = WebhookSettings
    openapi = Path(__file__).with_name("openapi.yaml")

    def due_steps(self) -> Sequence[DueStep]:
        """Dispatch events, and prune."""
        from django_ojs.extensions.webhooks.operations import dispatch

        return (
            DueStep(
                run=dispatch.WebhookDispatcher().dispatch,
                interval=1.0,
                batch=dispatch.BATCH,
                when=dispatch.active_condition,
            ),
            DueStep(run=dispatch.prune, interval=60.0),
        )

    def subcommands(self) -> Sequence[Any]:
        """Return the subcommand `webhooks`."""
        from django_ojs.extensions.webhooks import command_line as webhooks

        return webhooks.SUBCOMMANDS

    def routes(self) -> Sequence[Any]:
        """Return the routes of webhooks."""
        from django_ojs.extensions.webhooks import views as webhooks
        from django_ojs.http.routing import route

        hook, delivery = "v1/webhooks/subscriptions/<str:key>", "v1/webhooks/deliveries/<str:key>"
        return (
            route("v1/webhooks/subscriptions", webhooks.Subscriptions, "ojs-webhooks"),
            route(hook, webhooks.SubscriptionDetail, "ojs-webhook"),
            route(f"{hook}/test", webhooks.SubscriptionTest, "ojs-webhook-test"),
            route(f"{hook}/rotate-secret", webhooks.SubscriptionSecret, "ojs-webhook-secret"),
            route("v1/webhooks/deliveries", webhooks.Deliveries, "ojs-webhook-deliveries"),
            route(delivery, webhooks.DeliveryDetail, "ojs-webhook-delivery"),
            route(f"{delivery}/retry", webhooks.DeliveryRetry, "ojs-webhook-delivery-retry"),
        )

    def manifest(self) -> Sequence[Declared]:
        """Declare webhooks."""
        return (Declared(official="webhooks"),)

    def may_find(self) -> str:
        """Return the condition that a webhook is disabled."""
        from django_ojs.extensions.webhooks.findings import condition

        return condition()

    def findings(self) -> Sequence["Finding"]:
        """Return what operators should know about webhooks."""
        from django_ojs.extensions.webhooks import findings

        return findings.found()

    def pages(self) -> Mapping[type[Model], str]:
        """Return the pages of its model."""
        from django_ojs.extensions.webhooks.models import Webhook

        return {Webhook: "django_ojs.extensions.webhooks.admin.WebhookAdmin"}

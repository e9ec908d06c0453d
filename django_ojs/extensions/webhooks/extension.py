"""Webhooks: enqueue the deliveries of new events, and delete old records of them."""

from collections.abc import Sequence

from django_ojs.extension import DueStep, Extension, Hooks
from django_ojs.extensions.webhooks.settings import WebhookSettings


class WebhooksExtension(Extension):
    """Delivers events."""

    name = "webhooks"
    number = 17
    settings = WebhookSettings

    def hooks(self) -> Hooks:
        """Return the hooks: events are read from their log."""
        return Hooks()

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

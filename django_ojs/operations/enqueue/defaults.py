"""Defaults of a queue for the jobs that are enqueued to it (queue-config §6.2)."""

from collections.abc import Sequence

from django_ojs.conf import settings
from django_ojs.spec import retry_policy
from django_ojs.spec.envelope import Envelope, distinct
from django_ojs.storage.queue_configs import Snapshot


def fill_in(envelopes: Sequence[Envelope], configs: Snapshot | None) -> None:
    """Set what neither the caller nor the handler gave: the queue's default, or the settings'.

    `configs` is None where no queue of this server is configured, and for the queues of another
    server. A policy that the caller gave in part was completed by the settings alone.
    """
    default_retry = settings().default_retry
    if configs is None and default_retry is retry_policy.DEFAULT:
        return
    for envelope in distinct(envelopes):
        if configs is not None:
            config = configs.of(envelope.queue)
            envelope.timeout_ms = envelope.timeout_ms or config.default_timeout_ms
            envelope.visibility_timeout_ms = (
                envelope.visibility_timeout_ms or config.visibility_timeout_ms
            )
            envelope.retry = envelope.retry or config.default_retry
        if envelope.retry is None and default_retry is not retry_policy.DEFAULT:
            envelope.retry = default_retry

"""What the `options` column of a job holds: what no column of its own does."""

from collections.abc import Mapping
from typing import Any

from django_ojs.spec import retry
from django_ojs.spec.envelope.model import SPECVERSION, Envelope
from django_ojs.spec.retry import RetryPolicy


def options_of(envelope: Envelope) -> dict[str, Any]:
    """Return the JSON object to store; empty for a job that asks for nothing special.

    A retry policy is there only when it differs from the default, complete and not as a
    difference: changing the default later does not change jobs that were stored with their own.
    """
    options: dict[str, Any] = {}
    if envelope.specversion != SPECVERSION:
        options["specversion"] = envelope.specversion
    if envelope.scheduled_at_text is not None:
        options["scheduled_at"] = envelope.scheduled_at_text
    if envelope.expires_at_text is not None:
        options["expires_at"] = envelope.expires_at_text
    if envelope.retry is not None and envelope.retry != retry.DEFAULT:
        options["retry"] = envelope.retry.render()
    if envelope.visibility_timeout_ms is not None:
        options["visibility_timeout_ms"] = envelope.visibility_timeout_ms
    if envelope.unique is not None:
        options["unique"] = envelope.unique.render()
    if envelope.rate_limit is not None:
        options["rate_limit"] = envelope.rate_limit
    if envelope.schema is not None:
        options["schema"] = envelope.schema
    if envelope.tags:
        options["tags"] = list(envelope.tags)
    if envelope.offloaded:
        options["offloaded"] = list(envelope.offloaded)
    if envelope.extra:
        options["extra"] = envelope.extra
    return options


def retry_of(options: Mapping[str, Any] | None) -> RetryPolicy:
    """Return the retry policy of a stored job."""
    return retry.parse((options or {}).get("retry"), default=retry.DEFAULT)

"""An envelope as a client sends it to a server (http-binding §9.1)."""

from datetime import datetime, timedelta
from typing import Any

from django_ojs.spec import retry
from django_ojs.spec.envelope.model import Envelope
from django_ojs.spec.times import format_timestamp


def wire(envelope: Envelope, now: datetime) -> dict[str, Any]:
    """Return the body of a PUSH. `parse` makes the same envelope of it.

    A time from now becomes a moment: it counts from the enqueue, however late the job is sent. A
    retry policy is there when it differs from the default.
    """
    out: dict[str, Any] = {
        "specversion": envelope.specversion,
        "id": str(envelope.id),
        "type": envelope.type,
        "args": envelope.args,
    }
    if envelope.meta:
        out["meta"] = envelope.meta
    if envelope.schema is not None:
        out["schema"] = envelope.schema
    extra = dict(envelope.extra)
    unknown = extra.pop("options", None)
    out["options"] = {**(unknown if isinstance(unknown, dict) else {}), **_options(envelope, now)}
    for name, value in extra.items():
        out.setdefault(name, value)
    return out


def _options(envelope: Envelope, now: datetime) -> dict[str, Any]:
    options: dict[str, Any] = {"queue": envelope.queue}
    if envelope.priority:
        options["priority"] = envelope.priority
    for name in ("timeout_ms", "visibility_timeout_ms", "rate_limit"):
        value = getattr(envelope, name)
        if value is not None:
            options[name] = value
    if envelope.scheduled_at is not None:
        # Core's name and the binding's: a server need not know both.
        due = envelope.scheduled_at_text or _moment(envelope.scheduled_at, now)
        options["scheduled_at"] = options["delay_until"] = due
    if envelope.expires_at is not None:
        options["expires_at"] = envelope.expires_at_text or _moment(envelope.expires_at, now)
    if envelope.retry is not None and envelope.retry != retry.DEFAULT:
        options["retry"] = envelope.retry.render()
    if envelope.unique is not None:
        options["unique"] = envelope.unique.render()
    if envelope.tags:
        options["tags"] = list(envelope.tags)
    if envelope.pending:
        options["pending"] = True
    return options


def _moment(when: datetime | timedelta, now: datetime) -> str:
    return format_timestamp(now + when if isinstance(when, timedelta) else when)

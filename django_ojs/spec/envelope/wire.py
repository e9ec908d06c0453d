"""An envelope as a client sends it to a server (http-binding §9.1)."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django_ojs.spec.envelope.fields import FIELDS
from django_ojs.spec.envelope.model import Envelope
from django_ojs.spec.times import format_duration, format_timestamp

#: Attributes of the job itself; the others are sent in `options`.
_TOP_LEVEL: Final = frozenset({"meta", "schema", "parent_id", "root_id"})
_OPTIONS: Final = tuple(
    (field, field.name, field.default, field.text)
    for field in FIELDS
    if field.option and field.name not in _TOP_LEVEL
)

# `template` replaces the moments that `wire` computes, so it may pass any `now`.
_ANY_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)


def wire(envelope: Envelope, now: datetime) -> dict[str, Any]:
    """Return the body of a PUSH, from which `parse` makes the same envelope.

    A time relative to now becomes a moment, because it counts from the enqueue, however late the
    job is sent.
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
    if envelope.parent_id is not None:
        out["parent_id"] = str(envelope.parent_id)
    if envelope.root_id is not None:
        out["root_id"] = str(envelope.root_id)
    extra = dict(envelope.extra)
    unknown = extra.pop("options", None)
    out["options"] = {**(unknown if isinstance(unknown, dict) else {}), **_options(envelope, now)}
    for name, value in extra.items():
        out.setdefault(name, value)
    return out


def template(envelope: Envelope) -> dict[str, Any]:
    """Return the body of a PUSH that is made later, without what differs between the jobs.

    Times from now count from each enqueue.
    """
    out = wire(envelope, _ANY_TIME)
    del out["id"], out["specversion"]
    # These moments were made from times relative to now.
    out["options"].pop("delay_until", None)
    for field in ("scheduled_at", "expires_at"):
        when = getattr(envelope, field)
        if isinstance(when, timedelta):
            out["options"][field] = f"+{format_duration(when)}"
    return out


def _options(envelope: Envelope, now: datetime) -> dict[str, Any]:
    options: dict[str, Any] = {"queue": envelope.queue}
    for field, name, default, text in _OPTIONS:
        value = getattr(envelope, name)
        if value == default:
            continue
        if text is not None:
            moment = getattr(envelope, text) or _moment(value, now)
            # The value stands under every spelling, because a server need not know both.
            options.update(dict.fromkeys(field.spellings, moment))
        elif (rendered := field.render(value)) is not None:
            options[name] = rendered
    return options


def _moment(when: datetime | timedelta, now: datetime) -> str:
    return format_timestamp(now + when if isinstance(when, timedelta) else when)

"""An envelope as the row that PUSH stores."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from django_ojs.spec import json, retry
from django_ojs.spec.envelope import Envelope, options_of
from django_ojs.storage.dialects.base import Row


def build(envelopes: Sequence[Envelope]) -> list[Row]:
    """Return the rows that `Dialect.insert` stores; what is absent or the default has no key."""
    return [_row(envelope) for envelope in envelopes]


def size_of(row: Row) -> int:
    """Return what a row counts in a bound by bytes, as `Dialect.insert` stores it."""
    parts = [row["type"], row["queue"]]
    parts += [json.dumps(row[name]) for name in ("args", "meta", "options")]
    return sum(len(part.encode()) for part in parts)


def _row(envelope: Envelope) -> Row:
    policy = envelope.retry or retry.DEFAULT
    row: Row = {
        "id": str(envelope.id),
        "type": envelope.type,
        "queue": envelope.queue,
        "priority": envelope.priority,
        "args": envelope.args,
        "meta": envelope.meta,
        "options": options_of(envelope),
        "max_attempts": policy.max_attempts,
    }
    if envelope.timeout_ms is not None:
        row["timeout_ms"] = envelope.timeout_ms
    if envelope.visibility_timeout_ms is not None:
        row["visibility_timeout_ms"] = envelope.visibility_timeout_ms
    if envelope.unique is not None:
        row["unique_key"] = envelope.unique_key
    if envelope.pending:
        row["pending"] = True
    _add_time(row, "due", envelope.scheduled_at)
    _add_time(row, "expires", envelope.expires_at)
    return row


def _add_time(row: Row, name: str, value: datetime | timedelta | None) -> None:
    # A relative time is added up in the database, whose clock decides.
    if isinstance(value, timedelta):
        row[f"{name}_in"] = value.total_seconds()
    elif value is not None:
        # Not strftime: it writes the year 76 with two digits.
        row[f"{name}_at"] = value.astimezone(UTC).isoformat(sep=" ", timespec="microseconds")

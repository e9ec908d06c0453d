"""The rows of new jobs: columns by name, as `Dialect.insert_jobs` stores them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from django_ojs.spec import json, retry_policy
from django_ojs.spec.envelope import Envelope, options_of
from django_ojs.spec.times import format_timestamp

#: JSON as Python values; `due_in` and `expires_in` in seconds from now.
JobRow = dict[str, Any]


def size_of(row: JobRow) -> int:
    """Return the bytes of a row that count in a bound, as `Dialect.insert_jobs` stores them."""
    parts = [row["type"], row["queue"]]
    parts += [json.dumps(row[name]) for name in ("args", "meta", "options")]
    return sum(len(part.encode()) for part in parts)


def is_plain(envelope: Envelope) -> bool:
    """Say whether a job is available at once, and has no key, workflow or tenant."""
    return (
        envelope.scheduled_at is None
        and envelope.expires_at is None
        and envelope.longest_wait is None
        and envelope.unique is None
        and not envelope.pending
        and envelope.workflow_id is None
        and envelope.rate_limit is None
        and envelope.tenant_id is None
    )


def row_of(envelope: Envelope) -> JobRow:
    """Return the row of a job, without keys for absent and default values."""
    row: JobRow = {
        "id": str(envelope.id),
        "type": envelope.type,
        "queue": envelope.queue,
        "priority": envelope.priority,
        "args": envelope.args,
        "meta": envelope.meta,
        "options": options_of(envelope),
        "max_attempts": (envelope.retry or retry_policy.DEFAULT).max_attempts,
    }
    if envelope.timeout_ms is not None:
        row["timeout_ms"] = envelope.timeout_ms
    if envelope.visibility_timeout_ms is not None:
        row["visibility_timeout_ms"] = envelope.visibility_timeout_ms
    if envelope.unique is not None:
        row["unique_key"] = envelope.unique_key
    if envelope.workflow_id is not None:
        row["workflow_id"] = str(envelope.workflow_id)
    if envelope.parent_id is not None:
        row["parent_id"] = str(envelope.parent_id)
    if envelope.limit_key is not None:
        row["limit_key"] = envelope.limit_key
    if envelope.tenant_id is not None:
        row["tenant_id"] = envelope.tenant_id
    if envelope.pending:
        row["pending"] = True
    if envelope.scheduled_at is not None:
        _add_time(row, "due", envelope.scheduled_at)
    if envelope.expires_at is not None:
        _add_time(row, "expires", envelope.expires_at)
    if (longest_wait := envelope.longest_wait) is not None:
        row["longest_wait"] = longest_wait
        if isinstance(envelope.expires_at, datetime):
            # The first claim reads it again, in the form that every database reads.
            row["options"]["expires_at"] = format_timestamp(envelope.expires_at)
    return row


def _add_time(row: JobRow, name: str, value: datetime | timedelta) -> None:
    # A relative time is added to the database's time, because its clock decides.
    if isinstance(value, timedelta):
        row[f"{name}_in"] = value.total_seconds()
    else:
        # Not strftime: it writes the year 76 with two digits.
        row[f"{name}_at"] = value.astimezone(UTC).isoformat(sep=" ", timespec="microseconds")

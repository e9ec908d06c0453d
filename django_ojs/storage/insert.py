"""The insert of PUSH: envelopes become rows of `ojs_job`, in one statement."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import NoReturn

from django_ojs.spec import json, retry_policy
from django_ojs.spec.envelope import Envelope, options_of
from django_ojs.spec.errors import DuplicateJob
from django_ojs.storage import database, dialects
from django_ojs.storage.dialects.base import Row, Stored


def insert(envelopes: Sequence[Envelope], *, generated_ids: bool) -> list[Stored]:
    """Store jobs in order, without a check of their queues' bounds.

    `generated_ids`: the ids were made here and cannot be taken. Raises DuplicateJob naming the
    first whose id is taken, and its index.
    """
    stored = _insert(envelopes, generated_ids=generated_ids, only_if_admitted=False)
    return [] if stored is None else stored


def insert_if_admitted(
    envelopes: Sequence[Envelope], *, generated_ids: bool
) -> list[Stored] | None:
    """Store jobs in order if the statement itself can tell that their queues have room.

    Return None, with nothing stored, when it cannot: `backpressure.bounds` then counts.
    """
    return _insert(envelopes, generated_ids=generated_ids, only_if_admitted=True)


def size_of(row: Row) -> int:
    """Return the bytes by which a row counts in a bound, as `Dialect.insert` stores it."""
    parts = [row["type"], row["queue"]]
    parts += [json.dumps(row[name]) for name in ("args", "meta", "options")]
    return sum(len(part.encode()) for part in parts)


def row_of(envelope: Envelope) -> Row:
    """Return the row that `Dialect.insert` stores; what is absent or the default has no key."""
    row: Row = {
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
    if envelope.pending:
        row["pending"] = True
    if envelope.scheduled_at is not None:
        _add_time(row, "due", envelope.scheduled_at)
    if envelope.expires_at is not None:
        _add_time(row, "expires", envelope.expires_at)
    return row


def _insert(
    envelopes: Sequence[Envelope], *, generated_ids: bool, only_if_admitted: bool
) -> list[Stored] | None:
    connection = database.connection()
    rows = [row_of(envelope) for envelope in envelopes]
    stored = dialects.of(connection).insert_jobs(
        connection, rows, generated_ids=generated_ids, only_if_admitted=only_if_admitted
    )
    if stored is None:
        return None
    if len(stored) != len(envelopes):
        if generated_ids:
            raise AssertionError(
                "The database stored fewer jobs than it was given, and no id was taken."
            )
        _raise_duplicate(envelopes, stored)
    return stored


def _raise_duplicate(envelopes: Sequence[Envelope], stored: Iterable[Stored]) -> NoReturn:
    new = {job.id for job in stored}
    for index, envelope in enumerate(envelopes):
        if envelope.id not in new:
            raise DuplicateJob(
                "A job with this id exists already.",
                details={"existing_job_id": str(envelope.id), "index": index},
            )
        # The same id twice in one call: the second is the duplicate.
        new.discard(envelope.id)
    raise AssertionError("Fewer jobs were stored than given, yet each of them was.")


def _add_time(row: Row, name: str, value: datetime | timedelta) -> None:
    # A relative time is added up in the database, whose clock decides.
    if isinstance(value, timedelta):
        row[f"{name}_in"] = value.total_seconds()
    else:
        # Not strftime: it writes the year 76 with two digits.
        row[f"{name}_at"] = value.astimezone(UTC).isoformat(sep=" ", timespec="microseconds")

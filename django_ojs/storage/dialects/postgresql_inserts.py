"""The statements by which PostgreSQL stores new jobs, chosen by what the jobs are.

insert_jobs.sql stores any jobs. Most enqueues are of one plain job, or of many alike ones, and
procedures store these. A session plans them once, what alike jobs share is sent once, and their
arguments are encoded by one call; `direct_statements` makes the call without Django's cursors.
Another procedure stores a plain job with a unique policy: it locks the key and searches first.

For a plain job the client takes 0.10 ms of CPU time instead of 0.18, and the server a quarter of
its time; for each of a thousand alike jobs 3 µs instead of 15, and the batch two thirds of the
time. To measure it again, run `python -m tests.benchmarks --only enqueue --no-peers`, once with a
`_is_plain` that returns False.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from types import ModuleType
from typing import Any, Final
from uuid import UUID

from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs.spec import json
from django_ojs.spec.envelope import AlikeJobs, Envelope, options_of
from django_ojs.spec.retry_policy import DEFAULT
from django_ojs.spec.states import State
from django_ojs.spec.unique_policy import may_hold
from django_ojs.storage.dialects.base import Dialect
from django_ojs.storage.dialects.job_row import (
    AlikeRows,
    Found,
    NewRow,
    new_rows,
    rows_of,
)
from django_ojs.storage.dialects.sql_files import load

_SQL: Final = {"push": load("postgresql", "push")}
_WHERE_ADMITTED: Final = "WHERE (SELECT ojs_admit_all(%s::text[], %s::bigint[], %s::bigint[], %s))"
_SKIP_TAKEN: Final = "ON CONFLICT (id) DO NOTHING"
#: The other arguments of all procedures, in order, and their defaults as SQL. The call contains
#: them, because PostgreSQL would parse the defaults of a procedure for each call, which takes
#: longer.
_DEFAULTS: Final = {
    "priority": "0",
    "meta": "'{}'",
    "options": "'{}'",
    "timeout_ms": "NULL",
    "visibility_timeout_ms": "NULL",
    "parent_id": "NULL",
}
#: The arguments of each procedure that come after these; some have no default.
_MORE: Final = {
    "ojs_push": {"new": "true", "alone": "NULL"},
    "ojs_push_many": {"alone": "NULL"},
    "ojs_push_unique": {"key": "", "lock": "", "states": "", "held_for": "NULL"},
}
#: The most characters of the arguments of alike jobs in one call. A `jsonb` has to be smaller than
#: 256 MiB, and takes more bytes than the text.
_MOST: Final = 2**24
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Inserts(Dialect):
    """The part of the dialect that stores new jobs."""

    def insert_jobs(
        self,
        connection: BaseDatabaseWrapper,
        envelopes: Sequence[Envelope],
        *,
        generated_ids: bool,
        only_if_admitted: bool,
        unless_held: bool = False,
    ) -> Sequence[NewRow] | None:
        if unless_held:
            return _insert_unheld(connection, envelopes[0])
        alone = None
        if only_if_admitted:
            # Whether the statement is a transaction of its own.
            alone = not connection.in_atomic_block and connection.get_autocommit()
        if type(envelopes) is AlikeJobs:
            if _is_plain(envelopes.common) and 0 < len(envelopes.text) <= _MOST:
                return _insert_alike(connection, envelopes, alone)
        elif len(envelopes) == 1 and envelopes[0].unique is None and _is_plain(envelopes[0]):
            own = {} if generated_ids else {"new": False}
            if alone is not None:
                own["alone"] = alone
            row = _insert_one(connection, envelopes[0], "ojs_push", own)
            if row is not None:
                return [row]
            # The job was not admitted, or its id is taken; the procedure does not tell which.
            return [] if alone is None else None
        text = json.dumps(rows_of(envelopes))
        values: list[Any] = [text]
        if only_if_admitted:
            values += [*_admission_arguments(envelopes, text), alone]
        statement = self.sql["insert_jobs"].format(
            where_admitted=_WHERE_ADMITTED if only_if_admitted else "",
            on_conflict="" if generated_ids else _SKIP_TAKEN,
        )
        with connection.cursor() as cursor:
            cursor.execute(statement, values)
            found = cursor.fetchall()
        if not found and only_if_admitted:
            return None
        return new_rows(envelopes, [_found(*row) for row in found])


def _is_plain(envelope: Envelope) -> bool:
    """Return whether a job is available at once, and has no limit key and no mark."""
    return (
        envelope.scheduled_at is None
        and envelope.expires_at is None
        and envelope.longest_wait is None
        and not envelope.pending
        and not envelope.marks
        and envelope.rate_limit is None
    )


def _insert_one(
    connection: BaseDatabaseWrapper, job: Envelope, procedure: str, own: dict[str, Any]
) -> NewRow | None:
    """Store one job by a procedure with `own` arguments. Return None if it stored nothing.

    Raises _OneSnapshot.
    """
    args = json.dumps(job.args)
    more, text = _other_arguments(job)
    text += args
    size = len(text) if text.isascii() else len(text.encode())
    more |= own
    values = [
        str(job.id),
        job.type,
        job.queue,
        args,
        size,
        (job.retry or DEFAULT).max_attempts,
        *more.values(),
    ]
    microseconds = _direct().integer(connection, _call(procedure, *more), values)
    if microseconds is None:
        return None
    if microseconds < 0:
        raise _OneSnapshot
    at = _EPOCH + timedelta(microseconds=microseconds)
    return NewRow(job, State.AVAILABLE, at, at, None, None, size)


class _OneSnapshot(Exception):
    """The transaction has one snapshot for all statements; ojs_push_unique cannot search in it."""


def _insert_unheld(connection: BaseDatabaseWrapper, job: Envelope) -> list[NewRow] | None:
    if job.unique is None or not _is_plain(job):
        return None
    key, policy = str(job.unique_key), job.unique
    own = {"key": key, "lock": lock_number(key), "states": _array(may_hold(policy))}
    if policy.period is not None:
        own["held_for"] = str(policy.period.total_seconds())
    try:
        row = _insert_one(connection, job, "ojs_push_unique", own)
    except _OneSnapshot:
        return None
    return [] if row is None else [row]


def lock_number(key: str) -> int:
    """Return the number of the advisory lock of a unique key.

    It has 64 bits, the first quarter of the hash. Two keys with the same quarter wait for each
    other without need.
    """
    return int.from_bytes(bytes.fromhex(key)[:8], signed=True)


def _insert_alike(
    connection: BaseDatabaseWrapper, jobs: AlikeJobs, alone: bool | None
) -> AlikeRows | None:
    common = jobs.common
    more, text = _other_arguments(common)
    if alone is not None:
        more["alone"] = alone
    others = len(text) if text.isascii() else len(text.encode())
    values = [
        _array([f"{key.int:032x}" for key in jobs.ids]),
        jobs.text,
        _array([str(others + size) for size in jobs.sizes]),
        common.type,
        common.queue,
        (common.retry or DEFAULT).max_attempts,
        *more.values(),
    ]
    microseconds = _direct().integer(connection, _call("ojs_push_many", *more), values)
    if microseconds is None:
        return None
    return AlikeRows(jobs, _EPOCH + timedelta(microseconds=microseconds), others)


def _other_arguments(job: Envelope) -> tuple[dict[str, Any], str]:
    """Return the other arguments of a procedure, and the text of all but `args`, for its size.

    Arguments with the default value are left out. The others are in the order of `_DEFAULTS`.
    """
    more: dict[str, Any] = {}
    meta = options = "{}"
    if job.priority:
        more["priority"] = job.priority
    if job.meta:
        more["meta"] = meta = json.dumps(job.meta)
    if found := options_of(job):
        more["options"] = options = json.dumps(found)
    if job.timeout_ms:
        more["timeout_ms"] = job.timeout_ms
    if job.visibility_timeout_ms:
        more["visibility_timeout_ms"] = job.visibility_timeout_ms
    if job.parent_id is not None:
        more["parent_id"] = str(job.parent_id)
    return more, f"{job.type}{job.queue}{meta}{options}"


@cache
def _call(procedure: str, *given: str) -> str:
    """Return the call of a procedure; `given` are the arguments without the default value."""
    others = [
        "%s" if argument in given else default
        for argument, default in (_DEFAULTS | _MORE[procedure]).items()
    ]
    return _SQL["push"].format(procedure=procedure, others=", ".join(others))


@cache
def _direct() -> ModuleType:
    # A site on SQLite does not have psycopg.
    from django_ojs.storage.dialects import direct_statements

    return direct_statements


def _array(values: Sequence[str]) -> str:
    """Return an array of ids or numbers in PostgreSQL's syntax; the driver would take longer."""
    return f"{{{','.join(values)}}}"


def _admission_arguments(envelopes: Sequence[Envelope], text: str) -> list[list[Any]]:
    """Return queues, jobs and bytes for `ojs_admit_all`."""
    # For each queue, the bytes of the whole batch are given. These are more than its jobs have, but
    # are known without rendering the jobs twice. A pending job does not yet count for its queue.
    size = len(text) if text.isascii() else len(text.encode())
    jobs = Counter(envelope.queue for envelope in envelopes if not envelope.pending)
    return [list(jobs), list(jobs.values()), [size] * len(jobs)]


def _found(key: UUID, state: str, created: int, queued: int | None, *others: Any) -> Found:
    # Integers are parsed in C, whereas parsing a thousand timestamps takes as long as storing the
    # jobs.
    created_at = queued_at = _EPOCH + timedelta(microseconds=created)
    if queued is None:
        return key, state, created_at, None, *others
    if queued != created:
        queued_at = _EPOCH + timedelta(microseconds=queued)
    return key, state, created_at, queued_at, *others

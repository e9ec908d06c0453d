"""The row of a job: how it stores the envelope, and which columns a claim returns.

`row_of` is what `Dialect.insert_jobs` sends, `NewRow` what it returns: the envelope, and what the
database decided. `NewRow.columns` are the columns as a query would return them, for the model that
an enqueue returns, for the jobs of a test in memory, and for responses. `CLAIMED` are the columns
of `storage.claimed_job.Claimed`.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, cast, final, overload
from uuid import UUID

from django_ojs.spec import json, json_text, retry_policy, times
from django_ojs.spec.envelope import AlikeJobs, Envelope, StoredJob, options_of, render
from django_ojs.spec.states import State

#: JSON as Python values; `due_in` and `expires_in` are in seconds from now.
JobRow = dict[str, Any]

#: The columns of a claimed job, in the order in which `storage.claimed_job.Claimed` takes them.
CLAIMED: Final = (
    "id",
    "type",
    "queue",
    "priority",
    "args",
    "meta",
    "options",
    "attempt",
    "max_attempts",
    "returned",
    "run",
    "timeout_ms",
    "visibility_timeout_ms",
    "created_at",
    "enqueued_at",
    "due_at",
    "expires_at",
    "activated_at",
    "started_at",
    "lease_until",
    "worker_id",
    "error",
    "progress",
    "marks",
)

#: The columns that responses show only for jobs that have begun; a new job has no values there.
_LATER: Final = dict.fromkeys(
    (
        *("activated_at", "started_at", "finished_at", "worker_id", "lease_until", "progress"),
        *("result", "error", "discard_reason", "original_queue"),
    )
)
#: The members in which the JSON objects of alike jobs differ, in their order.
_OWN: Final = {"id": '"%s"', "args": "%s", "created_at": '"%s"', "enqueued_at": '"%s"'}


_STATES: Final = {state.value: state for state in State}


def size_of(row: JobRow) -> int:
    """Return the bytes of a row that count in a bound, as `Dialect.insert_jobs` stores them."""
    parts = [row["type"], row["queue"]]
    parts += [json.dumps(row[name]) for name in ("args", "meta", "options")]
    return sum(len(part.encode()) for part in parts)


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
    if envelope.marks:
        row["marks"] = envelope.marks
    if envelope.parent_id is not None:
        row["parent_id"] = str(envelope.parent_id)
    if envelope.pending:
        row["pending"] = True
    if envelope.scheduled_at is not None:
        _add_time(row, "due", envelope.scheduled_at)
    if envelope.expires_at is not None:
        _add_time(row, "expires", envelope.expires_at)
    if (longest_wait := envelope.longest_wait) is not None:
        row["longest_wait"] = longest_wait
        if isinstance(envelope.expires_at, datetime):
            # The first claim reads this, so it needs a form that every database reads.
            row["options"]["expires_at"] = times.format_timestamp(envelope.expires_at)
    return row


def rows_of(envelopes: Sequence[Envelope]) -> list[JobRow]:
    """Return the row of each job, as `row_of` does."""
    if type(envelopes) is not AlikeJobs:
        return [row_of(envelope) for envelope in envelopes]
    common = row_of(envelopes.common)
    return [
        {**common, "id": str(key), "args": args}
        for key, args in zip(envelopes.ids, envelopes.args, strict=True)
    ]


def _add_time(row: JobRow, name: str, value: datetime | timedelta) -> None:
    # A relative time is added to the database's time, because its clock decides.
    if isinstance(value, timedelta):
        row[f"{name}_in"] = value.total_seconds()
    else:
        # `strftime` is not used, because it writes the year 76 with two digits.
        row[f"{name}_at"] = value.astimezone(UTC).isoformat(sep=" ", timespec="microseconds")


class NewRow(NamedTuple):
    """A job that an enqueue stored: its envelope, and what the database decided about it."""

    envelope: Envelope
    state: State
    created_at: datetime
    enqueued_at: datetime | None
    due_at: datetime | None
    expires_at: datetime | None
    size_bytes: int

    def columns(self) -> dict[str, Any]:
        """Return the columns that an enqueue sets."""
        envelope = self.envelope
        options = options_of(envelope)
        # A relative time was made absolute when the job was stored.
        for name, given, absolute in (
            ("scheduled_at", envelope.scheduled_at, self.due_at),
            ("expires_at", envelope.expires_at, self.expires_at),
        ):
            is_other = name == "expires_at" and envelope.longest_wait is not None
            if given is not None and absolute is not None and name not in options and not is_other:
                options[name] = times.format_timestamp(absolute)
        return {
            "id": envelope.id,
            "type": envelope.type,
            "queue": envelope.queue,
            "state": self.state.value,
            "priority": envelope.priority,
            "args": envelope.args,
            "meta": envelope.meta,
            "options": options,
            "attempt": 0,
            "max_attempts": (envelope.retry or retry_policy.DEFAULT).max_attempts,
            "returned": 0,
            "lost_with_others": 0,
            "run": 0,
            "timeout_ms": envelope.timeout_ms,
            "visibility_timeout_ms": envelope.visibility_timeout_ms,
            "created_at": self.created_at,
            "enqueued_at": self.enqueued_at,
            "due_at": self.due_at,
            "expires_at": self.expires_at,
            "size_bytes": self.size_bytes,
            "unique_key": envelope.unique_key,
            "dead_letter": False,
            "marks": envelope.marks,
            "parent_id": envelope.parent_id,
            "hold": 0,
        }

    def render(self) -> dict[str, Any]:
        """Return the JSON object of the job, as `spec.envelope.render` does.

        The arguments of the enqueue are not copied, so a caller must not change them.
        """
        return render(cast("StoredJob", SimpleNamespace(**_LATER, **self.columns())))


#: What a statement returns of a job that it has stored: its id, and the other values of NewRow.
Found = tuple[UUID, str, datetime, datetime | None, datetime | None, datetime | None, int]


def new_rows(envelopes: Sequence[Envelope], found: Sequence[Found]) -> list[NewRow]:
    """Return the rows of the stored jobs, ordered as `envelopes`; `found` may have any order."""
    if len(envelopes) == len(found) == 1:
        values = found[0]
        return [NewRow(envelopes[0], _STATES[values[1]], *values[2:])]
    by_id = {each[0]: each for each in found}
    rows = []
    for envelope in envelopes:
        # If an id comes twice, the first job was stored.
        if (own := by_id.pop(envelope.id, None)) is not None:
            rows.append(NewRow(envelope, _STATES[own[1]], *own[2:]))
    return rows


@final
class AlikeRows(Sequence[NewRow]):
    """The rows of alike jobs, available at once, each a microsecond later than the one before."""

    __slots__ = ("first", "jobs", "other_bytes")

    def __init__(self, jobs: AlikeJobs, created_at: datetime, other_bytes: int) -> None:
        self.jobs = jobs
        #: The time of the first job, in UTC.
        self.first = created_at
        #: The bytes of each job without its arguments.
        self.other_bytes = other_bytes

    def __len__(self) -> int:
        return len(self.jobs)

    @overload
    def __getitem__(self, index: int) -> NewRow: ...
    @overload
    def __getitem__(self, index: slice) -> list[NewRow]: ...
    def __getitem__(self, index: int | slice) -> NewRow | list[NewRow]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        at = self.first + timedelta(microseconds=index)
        size = self.other_bytes + self.jobs.sizes[index]
        return NewRow(self.jobs[index], State.AVAILABLE, at, at, None, None, size)

    def texts(self) -> list[str]:
        """Return the text of the JSON object of each job, as `dumps` would write it."""
        template = json_text.template(self[0].render(), _OWN)
        # Jobs of the same millisecond have the same text, because responses have no smaller unit.
        moments: dict[int, str] = {}
        texts = []
        for index, (key, args) in enumerate(zip(self.jobs.ids, self._args(), strict=True)):
            millisecond = (self.first.microsecond + index) // 1000
            if (at := moments.get(millisecond)) is None:
                at = times.format_timestamp(self.first + timedelta(microseconds=index))
                moments[millisecond] = at
            texts.append(template % (key, args, at, at))
        return texts

    def _args(self) -> Iterator[str]:
        text: str | bytes = self.jobs.text
        if not self.jobs.text.isascii():
            text = self.jobs.text.encode()  # The sizes are in bytes.
        start = 1
        for size in self.jobs.sizes:
            part = text[start : start + size]
            yield part if isinstance(part, str) else part.decode()
            start += size + 1

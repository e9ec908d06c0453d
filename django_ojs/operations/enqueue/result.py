"""The result of an enqueue: the job and its outcome."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db.models.base import ModelState
from django.db.models.signals import ModelSignal, post_init, pre_init

from django_ojs.models import Job
from django_ojs.spec.envelope import Envelope, render
from django_ojs.spec.states import State
from django_ojs.storage import database, transitions
from django_ojs.storage.dialects.job_row import AlikeRows, NewRow

_FIELDS = tuple(field.attname for field in Job._meta.concrete_fields)
_CONTAINERS = (list, tuple, dict)
_BLANK = dict.fromkeys(_FIELDS)


class Outcome(StrEnum):
    """What an enqueue did with a job."""

    #: A new row of this site's jobs.
    STORED = "stored"
    #: Nothing was stored: by its unique policy, the job is a duplicate of the job in the result.
    DUPLICATE = "duplicate"
    #: A row of the outbox, from where the job is sent to its `destination`.
    OUTBOX = "outbox"
    #: Nothing was stored: an enqueue middleware dropped the job.
    DROPPED = "dropped"


# It is not frozen: making one would take four times as long, and a batch has thousands. The fields
# are Final, so type checkers reject changes.
@dataclass(slots=True, unsafe_hash=True)
class EnqueuedJob:
    """The result of an enqueue, for one job.

    `id`, `type`, `queue` and `state` describe the stored job; for a duplicate, the existing one. A
    job in the outbox is `pending`; a dropped job has the id it would have had, and no state.
    `destination` is set for a job in the outbox only.
    """

    id: Final[UUID]
    type: Final[str]
    queue: Final[str]
    state: Final[State | None]
    outcome: Final[Outcome]
    destination: Final[str | None] = None
    #: The rows of the alike jobs that were stored together, or the row of this job alone, and the
    #: index of this job among them.
    rows: Final[Sequence[NewRow | Job]] = field(default=(), compare=False, repr=False)
    index: Final[int] = field(default=0, compare=False, repr=False)

    @property
    def row(self) -> NewRow | Job | None:
        """The row of the stored or the existing job, or None for a dropped job."""
        return self.rows[self.index] if self.rows else None

    def job(self) -> Job:
        """Query the job as it is now. Raises JobNotFound when it is not a row of this site."""
        return transitions.get(self.id)

    async def ajob(self) -> Job:
        """Return the job as it is now; see `job`."""
        return await sync_to_async(self.job)()

    if not TYPE_CHECKING:  # A type checker would otherwise accept every name.

        def __getattr__(self, name: str) -> Any:
            from django_ojs.spec.other_queues import no_attribute  # which only an error needs

            raise no_attribute(name, "enqueued", "The result of an enqueue")

    def model(self) -> Job:
        """Return the job as the enqueue stored it, without a query; not for a dropped job.

        The model is made on demand, because making it costs as much as the insert.
        """
        row = self.row
        assert row is not None, "a dropped job has no model"
        return row if isinstance(row, Job) else _model(row)

    def render(self) -> dict[str, Any]:
        """Return the JSON object of the model; not for a dropped job.

        This makes no model, and does not copy the values that the enqueue was given. The caller
        must not change them.
        """
        row = self.row
        assert row is not None, "a dropped job has no JSON object"
        return render(row) if isinstance(row, Job) else row.render()


def of_new(
    rows: Sequence[NewRow], outcome: Outcome = Outcome.STORED, destination: str | None = None
) -> list[EnqueuedJob]:
    """Return the results for jobs that were inserted, here or into the outbox."""
    if type(rows) is AlikeRows:
        common, state = rows.jobs.common, State.AVAILABLE
        return [
            EnqueuedJob(key, common.type, common.queue, state, outcome, destination, rows, index)
            for index, key in enumerate(rows.jobs.ids)
        ]
    results = []
    for row in rows:
        job = row.envelope
        results.append(
            EnqueuedJob(job.id, job.type, job.queue, row.state, outcome, destination, (row,))
        )
    return results


def of_row(job: Job, outcome: Outcome) -> EnqueuedJob:
    """Return the result for a job that was read."""
    return EnqueuedJob(job.pk, job.type, job.queue, State(job.state), outcome, rows=(job,))


def of_dropped(envelope: Envelope) -> EnqueuedJob:
    """Return the result for a job that a middleware dropped."""
    return EnqueuedJob(envelope.id, envelope.type, envelope.queue, None, Outcome.DROPPED)


def alike(jobs: Sequence[EnqueuedJob]) -> AlikeRows | None:
    """Return the rows of alike jobs that were stored together, or None for other jobs."""
    rows = jobs[0].rows
    return rows if type(rows) is AlikeRows and len(rows) == len(jobs) else None


def in_order(
    envelopes: Sequence[Envelope],
    admitted: Sequence[Envelope | None],
    stored: Sequence[EnqueuedJob],
) -> list[EnqueuedJob]:
    """Return the results of all jobs, including jobs that a middleware dropped."""
    remaining = iter(stored)
    return [
        of_dropped(envelope) if passed is None else next(remaining)
        for envelope, passed in zip(envelopes, admitted, strict=True)
    ]


def as_stored(value: Any) -> Any:
    """Return a JSON value as a later query returns it: tuples as lists, all containers new."""
    if isinstance(value, (list, tuple)):
        return [as_stored(item) if isinstance(item, _CONTAINERS) else item for item in value]
    if isinstance(value, dict):
        return {
            name: as_stored(item) if isinstance(item, _CONTAINERS) else item
            for name, item in value.items()
        }
    return value


def _model(row: NewRow) -> Job:
    values = row.columns()
    for name in ("args", "meta", "options"):
        values[name] = as_stored(values[name])
    if _has_listeners(pre_init) or _has_listeners(post_init):
        return Job.from_db(database.alias(), _FIELDS, [values.get(name) for name in _FIELDS])
    return _quick_model(values)


def _has_listeners(signal: ModelSignal) -> bool:
    # Most projects have no receiver for any model.
    return bool(signal.receivers) and signal.has_listeners(Job)


def _quick_model(values: dict[str, Any]) -> Job:
    # This does the same as `from_db` in a fifth of the time, which matters in a batch of a
    # thousand.
    job = Job.__new__(Job)
    job.__dict__ = _BLANK | values
    job._state = ModelState()
    job._state.adding, job._state.db = False, database.alias()
    return job

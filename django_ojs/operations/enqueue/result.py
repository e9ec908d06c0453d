"""The result of an enqueue: the job and its outcome."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db.models.base import ModelState
from django.db.models.signals import ModelSignal, post_init, pre_init

from django_ojs.models import Job
from django_ojs.spec import ids, json_text, retry_policy, times
from django_ojs.spec.envelope import Envelope, options_of, render
from django_ojs.spec.json import JSON
from django_ojs.spec.rate_limit import Hold
from django_ojs.spec.states import State
from django_ojs.storage import database, transitions
from django_ojs.storage.dialects.rows import Stored

_FIELDS = tuple(field.attname for field in Job._meta.concrete_fields)
_CONTAINERS = (list, tuple, dict)
_BLANK = dict.fromkeys(_FIELDS)
#: The members of the JSON object that each job of a uniform batch has of its own, in their order.
_OWN: Final = {"id": '"%s"', "args": "%s", "created_at": '"%s"', "enqueued_at": '"%s"'}


class Outcome(StrEnum):
    """What an enqueue did with a job."""

    #: A new row of this site's jobs.
    STORED = "stored"
    #: Nothing was stored: a unique policy ignored the job, and the result is the job it equals.
    DUPLICATE = "duplicate"
    #: A row of the outbox, from where the job is sent to its `destination`.
    OUTBOX = "outbox"
    #: Nothing was stored: an enqueue middleware dropped the job.
    DROPPED = "dropped"


@dataclass(frozen=True, kw_only=True, slots=True)
class EnqueuedJob:
    """The result of an enqueue, for one job.

    `id`, `type`, `queue` and `state` are those of the job that was stored; for a duplicate, those
    of the job that exists. A job in the outbox is `pending`; one that was dropped has the id it
    would have had, and no state. `destination` is set for a job in the outbox only.
    """

    id: UUID
    type: str
    queue: str
    state: State | None
    outcome: Outcome
    destination: str | None = None
    #: The source of `model`: the envelope and the values that the database set, or the row that
    #: was read.
    envelope: Envelope | None = field(default=None, compare=False, repr=False)
    stored: Stored | None = field(default=None, compare=False, repr=False)
    row: Job | None = field(default=None, compare=False, repr=False)
    #: Where the values of a plain job are, until one of them is read.
    _source: "PlainJob | UniformBatch | None" = field(default=None, compare=False, repr=False)
    _index: int = field(default=0, compare=False, repr=False)

    if not TYPE_CHECKING:  # Type checkers would accept any name.

        def __getattr__(self, name: str) -> Any:
            if name not in _LATER:
                raise AttributeError(f"EnqueuedJob has no attribute {name!r}")
            source = self._source
            if source is not None:
                for field_name, value in source.values(self._index).items():
                    object.__setattr__(self, field_name, value)
                # As every result has them: `asdict` copies them too.
                object.__setattr__(self, "_source", None)
                object.__setattr__(self, "_index", 0)
            return object.__getattribute__(self, name)

    def job(self) -> Job:
        """Query the job as it is now. Raises JobNotFound when it is not a row of this site."""
        return transitions.get(self.id)

    async def ajob(self) -> Job:
        """Return the job as it is now; see `job`."""
        return await sync_to_async(self.job)()

    def model(self) -> Job:
        """Return the job as the enqueue stored it, without a query; not for a dropped job.

        Made on demand, for code that renders or publishes a job: it costs as much as the insert.
        """
        if self.row is not None:
            return self.row
        assert self.envelope is not None, "a dropped job has no model"
        assert self.stored is not None
        return _model(self.envelope, self.stored)

    def render(self) -> dict[str, Any]:
        """Return the JSON object of the model; not for a dropped job.

        No model is made for it, and what the enqueue was given is not copied: who reads it must
        not change it.
        """
        if self.row is not None:
            return render(self.row)
        assert self.envelope is not None, "a dropped job has no JSON object"
        assert self.stored is not None
        return render(_Shown(self.envelope, self.stored))


#: The attributes that `_values` makes.
_LATER: Final = frozenset(
    ("id", "type", "queue", "state", "outcome", "destination", "envelope", "stored", "row")
)


class PlainJob:
    """A job that was stored alone, available at once."""

    __slots__ = ("_envelope", "_stored")

    def __init__(self, envelope: Envelope, stored: Stored) -> None:
        self._envelope = envelope
        self._stored = stored

    def result(self) -> EnqueuedJob:
        """Return the result, whose values are made when they are read."""
        result = EnqueuedJob.__new__(EnqueuedJob)
        object.__setattr__(result, "_source", self)
        object.__setattr__(result, "_index", 0)
        return result

    def values(self, index: int) -> dict[str, Any]:
        """Return the attributes of the result."""
        return _values(self._envelope, self._stored)


@dataclass(frozen=True, kw_only=True, slots=True)
class UniformBatch:
    """Jobs that were stored together, and differ in their ids and arguments only."""

    common: Envelope
    #: The ids, as numbers.
    ids: Sequence[int]
    args: Sequence[list[JSON]]
    #: The arguments as the JSON of one array.
    text: str
    #: The bytes of the arguments of each, and those of all else.
    sizes: Sequence[int]
    other_bytes: int
    #: The time of the first job; each is a microsecond later than the one before it.
    created_at: datetime

    def results(self) -> list[EnqueuedJob]:
        """Return the result of each job, whose values are made when they are read."""
        results = []
        make, keep = EnqueuedJob.__new__, object.__setattr__
        for index in range(len(self.ids)):
            result = make(EnqueuedJob)
            keep(result, "_source", self)
            keep(result, "_index", index)
            results.append(result)
        return results

    def texts(self) -> list[str]:
        """Return the text of the JSON object of each job, as `envelope.render` has its model."""
        first, values = self.created_at, self.values(0)
        template = json_text.template(render(_Shown(values["envelope"], values["stored"])), _OWN)
        # One text for the jobs of a millisecond, of which the response has no parts.
        moments: dict[int, str] = {}
        texts = []
        for index, (number, args) in enumerate(zip(self.ids, self._texts_of_args(), strict=True)):
            millisecond = (first.microsecond + index) // 1000
            if (at := moments.get(millisecond)) is None:
                at = times.format_timestamp(first + timedelta(microseconds=index))
                moments[millisecond] = at
            texts.append(template % (ids.text_of(number), args, at, at))
        return texts

    def _texts_of_args(self) -> Iterator[str]:
        text: str | bytes = self.text
        if not self.text.isascii():
            text = self.text.encode()  # The sizes are those of bytes.
        start = 1
        for size in self.sizes:
            part = text[start : start + size]
            yield part if isinstance(part, str) else part.decode()
            start += size + 1

    def values(self, index: int) -> dict[str, Any]:
        """Return the attributes of the result for one job."""
        key = UUID(int=self.ids[index])
        created_at = self.created_at + timedelta(microseconds=index)
        size = self.sizes[index] + self.other_bytes
        return _values(
            # Copies, as the jobs of an ordinary batch have: a change of one is none of the others.
            replace(
                self.common, id=key, args=self.args[index], meta=copy.deepcopy(self.common.meta)
            ),
            Stored(key, State.AVAILABLE, created_at, created_at, None, None, size),
        )


def _values(envelope: Envelope, stored: Stored) -> dict[str, Any]:
    return {
        "id": envelope.id,
        "type": envelope.type,
        "queue": envelope.queue,
        "state": State.AVAILABLE,
        "outcome": Outcome.STORED,
        "destination": None,
        "envelope": envelope,
        "stored": stored,
        "row": None,
    }


def of_row(job: Job, outcome: Outcome) -> EnqueuedJob:
    """Return the result for a job that was read."""
    return EnqueuedJob(
        id=job.pk,
        type=job.type,
        queue=job.queue,
        state=State(job.state),
        outcome=outcome,
        row=job,
    )


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


class _Shown:
    """The attributes of a model that `render` reads."""

    def __init__(self, envelope: Envelope, stored: Stored) -> None:
        self.__dict__ = _BLANK | _columns(envelope, stored)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def _model(envelope: Envelope, stored: Stored) -> Job:
    values = _columns(envelope, stored)
    for name in ("args", "meta", "options"):
        values[name] = as_stored(values[name])
    if _has_listeners(pre_init) or _has_listeners(post_init):
        return Job.from_db(database.alias(), _FIELDS, [values.get(name) for name in _FIELDS])
    return _quick_model(values)


def _columns(envelope: Envelope, stored: Stored) -> dict[str, Any]:
    """Return the columns of a job that was stored; its arguments are those of the envelope."""
    options = options_of(envelope)
    # A relative time was made absolute when the job was stored.
    for name, given, absolute in (
        ("scheduled_at", envelope.scheduled_at, stored.due_at),
        ("expires_at", envelope.expires_at, stored.expires_at),
    ):
        is_other = name == "expires_at" and envelope.longest_wait is not None
        if given is not None and absolute is not None and name not in options and not is_other:
            options[name] = times.format_timestamp(absolute)
    return {
        "id": envelope.id,
        "type": envelope.type,
        "queue": envelope.queue,
        "state": str(stored.state),
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
        "created_at": stored.created_at,
        "enqueued_at": stored.enqueued_at,
        "due_at": stored.due_at,
        "expires_at": stored.expires_at,
        "size_bytes": stored.size_bytes,
        "unique_key": envelope.unique_key,
        "dead_letter": False,
        "has_checkpoint": False,
        "workflow_id": envelope.workflow_id,
        "parent_id": envelope.parent_id,
        "limit_key": envelope.limit_key,
        "limit_hold": Hold.of(envelope.limit_key),
        "tenant_id": envelope.tenant_id,
    }


def _has_listeners(signal: ModelSignal) -> bool:
    # Most projects have no receiver for any model.
    return bool(signal.receivers) and signal.has_listeners(Job)


def _quick_model(values: dict[str, Any]) -> Job:
    # The same as `from_db` in a fifth of its time, which matters in a batch of a thousand.
    job = Job.__new__(Job)
    job.__dict__ = _BLANK | values
    job._state = ModelState()
    job._state.adding, job._state.db = False, database.alias()
    return job

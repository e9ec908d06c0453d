"""A claimed job, as FETCH returns it.

Its JSON is parsed on access, because FETCH creates hundreds of them.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime, timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from django.utils.functional import cached_property

from django_ojs.conf import settings
from django_ojs.spec import envelope, json, json_text, retry_policy
from django_ojs.spec.retry_policy import RetryPolicy
from django_ojs.spec.states import State
from django_ojs.spec.times import elapsed, format_timestamp


class Claimed:
    """An active job and the claim on it. Attributes are the job's fields; see `models.Job`."""

    state = State.ACTIVE.value
    result = None
    finished_at = None
    dead_letter = False
    original_queue = None
    discard_reason = None

    id: UUID
    type: str
    queue: str
    priority: int
    attempt: int
    max_attempts: int
    returned: int
    run: int
    timeout_ms: int | None
    visibility_timeout_ms: int | None
    created_at: datetime
    enqueued_at: datetime
    due_at: datetime | None
    expires_at: datetime | None
    activated_at: datetime | None
    started_at: datetime | None
    lease_until: datetime | None
    worker_id: str | None
    marks: int
    #: What extensions have read for its handler, as members of its JSON object (`Hooks.fetched`).
    more: Mapping[str, json.JSON] = MappingProxyType({})

    def __init__(self, row: tuple[Any, ...]) -> None:
        (
            self.id,
            self.type,
            self.queue,
            self.priority,
            self._args,
            self._meta,
            self._options,
            self.attempt,
            self.max_attempts,
            self.returned,
            self.run,
            self.timeout_ms,
            self.visibility_timeout_ms,
            self.created_at,
            self.enqueued_at,
            self.due_at,
            self.expires_at,
            self.activated_at,
            self.started_at,
            self.lease_until,
            self.worker_id,
            self._error,
            self._progress,
            self.marks,
        ) = row
        #: The length of its arguments, metadata and options as the database returned them.
        self.size: int = len(self._args) + len(self._meta) + len(self._options)

    def __repr__(self) -> str:
        return f"<Claimed {self.type} {self.id} attempt {self.attempt}>"

    @property
    def pk(self) -> UUID:
        """The job's id."""
        return self.id

    @property
    def lease(self) -> timedelta:
        """For how long the claim reserved the job."""
        assert self.lease_until is not None
        assert self.started_at is not None
        return elapsed(self.started_at, self.lease_until)

    @cached_property
    def args(self) -> list[json.JSON]:
        """The handler's positional arguments."""
        return _read(self._args)  # type: ignore[return-value]  # PUSH stores arrays only

    @cached_property
    def meta(self) -> dict[str, json.JSON]:
        """The job's metadata."""
        return _read(self._meta)  # type: ignore[return-value]  # PUSH stores objects only

    @cached_property
    def options(self) -> dict[str, json.JSON]:
        """The other attributes of the envelope."""
        return _read(self._options)  # type: ignore[return-value]  # PUSH stores objects only

    @cached_property
    def error(self) -> dict[str, json.JSON] | None:
        """The error of the attempt before this one."""
        return _read(self._error) if self._error is not None else None  # type: ignore[return-value]  # as above

    @cached_property
    def progress(self) -> dict[str, json.JSON] | None:
        """The last report of an earlier run."""
        return _read(self._progress) if self._progress is not None else None  # type: ignore[return-value]  # an object or NULL

    @property
    def spent(self) -> int:
        """Attempts that count against `max_attempts`, this one included."""
        return self.attempt - self.returned

    @property
    def retry_policy(self) -> RetryPolicy:
        """The job's retry policy, complete."""
        find = _policy_of if len(self._options) <= _LONGEST_KEPT else _policy_of.__wrapped__
        return find(self._options)

    @property
    def tags(self) -> list[str]:
        """The job's tags."""
        return list(self.options.get("tags") or ())  # type: ignore[arg-type]  # validated at PUSH

    @property
    def workflow_id(self) -> UUID | None:
        """The workflow that it is a step of."""
        return envelope.workflow_of(self.options) if self.marks else None

    @property
    def parent_results(self) -> list[json.JSON]:
        """The results of the steps before it in its workflow, in order."""
        return list(self.options.get("parent_results") or ())  # type: ignore[arg-type]  # an array

    def envelope(self) -> dict[str, Any]:
        """Render the job as its OJS envelope."""
        return envelope.render(self, more=self.more)

    def _shape(self) -> tuple[Any, ...] | None:
        """Return what its JSON object depends on besides `_OWN`, or None if it depends on more."""
        if self.run > 1 or self._error is not None or self._progress is not None or self.more:
            return None
        return (
            self.type,
            self.queue,
            self._options,
            self.priority,
            self.attempt,
            self.max_attempts,
            self.timeout_ms,
            self.expires_at,
            self.activated_at,
            self.started_at,
        )


#: Longer options differ from job to job, so that keeping their policy saves nothing.
_LONGEST_KEPT: Final = 1_000


# When a service is away, the jobs that fail have few different policies.
@lru_cache(maxsize=128)
def _policy_of(options: str) -> RetryPolicy:
    return retry_policy.of_options(_read(options))  # type: ignore[arg-type]  # an object


def _read(text: str) -> json.JSON:
    return json.loads_stored(text, exact_integers=settings().exact_integers)


#: The members of the JSON object that differ between the jobs of a claim, in their order.
_OWN: Final = {
    "id": '"%s"',
    "args": "%s",
    "meta": "%s",
    "created_at": '"%s"',
    "enqueued_at": '"%s"',
}


def texts_of(jobs: Sequence[Claimed], render: Callable[[Claimed], dict[str, Any]]) -> list[str]:
    """Return the text of the JSON object of each job, as `dumps` writes what `render` returns.

    Most jobs of a claim are alike. Of the jobs that differ in `_OWN` only, one is rendered, and its
    text is the template for the others. Raises InvalidPayload for a stored value that is not JSON.
    """
    alike: defaultdict[tuple[Any, ...] | None, list[int]] = defaultdict(list)
    for index, job in enumerate(jobs):
        alike[job._shape()].append(index)
    texts = [""] * len(jobs)
    for shape, indexes in alike.items():
        if shape is None or len(indexes) == 1:
            for index in indexes:
                texts[index] = json.dumps(render(jobs[index]))
            continue
        template = json_text.template(render(jobs[indexes[0]]), _OWN)
        values = json_text.compact(
            [text for index in indexes for text in (jobs[index]._args, jobs[index]._meta)],
            exact_integers=settings().exact_integers,
        )
        for index, args, meta in zip(indexes, values[::2], values[1::2], strict=True):
            job = jobs[index]
            created = enqueued = format_timestamp(job.created_at)
            if job.enqueued_at != job.created_at:
                enqueued = format_timestamp(job.enqueued_at)
            texts[index] = template % (job.id, args, meta, created, enqueued)
    return texts


#: The job whose handler runs here: the parent of the jobs that it enqueues.
running: Final[ContextVar[Claimed | None]] = ContextVar("django_ojs_running", default=None)

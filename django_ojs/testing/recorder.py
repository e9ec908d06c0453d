"""The jobs of a test in fake mode (ojs-testing §5.1): recorded in memory, without a database."""

import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone

from django_ojs import hooks
from django_ojs.extension import Batch
from django_ojs.models import Job
from django_ojs.operations.enqueue.admission import admit, fill_in_defaults
from django_ojs.operations.enqueue.result import EnqueuedJob, Outcome, of_dropped, of_new
from django_ojs.spec.envelope import Envelope
from django_ojs.spec.errors import DuplicateJob, JobNotFound
from django_ojs.spec.states import State
from django_ojs.storage import queue_configs
from django_ojs.storage.dialects.job_row import NewRow


class FakeModeError(RuntimeError):
    """A test in fake mode asked for something that needs rows, such as a run of a job."""

    def __init__(self, call: str) -> None:
        super().__init__(
            f"{call} needs the rows of jobs, and fake mode only records jobs in memory: no handler "
            "runs, and no time passes for them. Use real mode, in which jobs are rows of the "
            "test's database: the fixture ojs, or OJSTestMixin with a TestCase. To run one "
            "handler, perform() works in fake mode too."
        )


class Recorder:
    """Unsaved models of the jobs that the test has enqueued, as they were enqueued or cancelled.

    They pass the checks and the middleware of an enqueue. Nothing that depends on other jobs or on
    stored settings is applied: unique policies, bounds, the outbox, paused queues.
    """

    def __init__(self) -> None:
        #: The results of the test's enqueues.
        self.results: list[EnqueuedJob] = []
        self._lock = threading.RLock()
        self._jobs: dict[UUID, Job] = {}
        #: What extensions record, by ids of their own.
        self.others: dict[UUID, Any] = {}

    def push(self, batch: Batch, store: Callable[[], list[EnqueuedJob]]) -> list[EnqueuedJob]:
        return self.record(list(batch.jobs), batch=batch.options.batch)

    def record(self, envelopes: Sequence[Envelope], *, batch: bool) -> list[EnqueuedJob]:
        """Record jobs that pass the checks and the middleware. Return their results."""
        admitted = admit_in_memory(envelopes, batch=batch)
        passed = [each for each in admitted if each is not None]
        fill_in_defaults(passed, None)
        results = [
            of_dropped(envelope) if each is None else recorded(each)
            for envelope, each in zip(envelopes, admitted, strict=True)
        ]
        with self._lock:
            taken = {*self._jobs}
            for envelope in passed:
                if envelope.id in taken:
                    details = {"existing_job_id": str(envelope.id)}
                    raise DuplicateJob("A job with this id exists already.", details=details)
                taken.add(envelope.id)
            self.results += results
            jobs = [result.model() for result in results if result.outcome is Outcome.STORED]
            self._jobs.update((job.pk, job) for job in jobs)
        if hooks.registry.stored_and_committed:
            hooks.call_after(hooks.registry.stored_and_committed, [_copy(job) for job in jobs])
        return results

    def jobs(self) -> list[Job]:
        with self._lock:
            return [_copy(job) for job in self._jobs.values()]

    def get(self, job_id: UUID) -> Job:
        with self._lock:
            return _copy(self._find(job_id))

    def lock(self, job_id: UUID) -> None:
        if job_id in self._jobs:
            raise FakeModeError("A change of a job other than cancel()")

    def cancel(self, job_id: UUID) -> tuple[Job, State]:
        with self._lock:
            job = self._find(job_id)
            before = State(job.state)
            if before is not State.CANCELLED:
                job.state, job.finished_at = State.CANCELLED.value, timezone.now()
            return _copy(job), before

    def clear(self) -> None:
        with self._lock:
            self._jobs.clear()
            self.others.clear()
            self.results.clear()

    def _find(self, job_id: UUID) -> Job:
        if job_id not in self._jobs:
            raise JobNotFound.with_id(job_id)
        return self._jobs[job_id]


def admit_in_memory(envelopes: Sequence[Envelope], *, batch: bool) -> Sequence[Envelope | None]:
    """Admit jobs as an enqueue does, without a query for the configurations of queues."""
    queue_configs.remember({}, seconds=60.0)
    return admit(envelopes, queue_configs.current(), batch=batch)


def recorded(envelope: Envelope) -> EnqueuedJob:
    """Return what an enqueue returns for a job, without storing a row."""
    now = timezone.now()
    due = _moment(envelope.scheduled_at, now)
    is_late = due is not None and due > now
    state = State.SCHEDULED if is_late else State.AVAILABLE
    if envelope.pending:
        state = State.PENDING
    row = NewRow(
        envelope,
        state=state,
        created_at=now,
        enqueued_at=now if state is State.AVAILABLE else None,
        due_at=due if is_late else None,
        expires_at=_moment(envelope.expires_at, now),
        size_bytes=0,
    )
    return of_new([row])[0]


def _moment(when: datetime | timedelta | None, now: datetime) -> datetime | None:
    return now + when if isinstance(when, timedelta) else when


def _copy(job: Job) -> Job:
    # The copy has its own state. JSON values are shared, because nothing changes them in place.
    return Job.from_db(
        job._state.db, [f.attname for f in _FIELDS], [getattr(job, f.attname) for f in _FIELDS]
    )


_FIELDS = Job._meta.concrete_fields

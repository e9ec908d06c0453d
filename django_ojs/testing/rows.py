"""The jobs of a test in the modes real and inline: rows of its database."""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar
from uuid import UUID

from django.db.models.functions import Now

from django_ojs.conf import settings
from django_ojs.context import JobContext
from django_ojs.extension import Batch, Suspended
from django_ojs.handlers import get_handler, job_types
from django_ojs.hooks import next_jobs, registry
from django_ojs.models import Job
from django_ojs.operations import ack, beat, fail, progress, run_now
from django_ojs.operations.due_jobs import DueCheck
from django_ojs.operations.enqueue.result import EnqueuedJob, Outcome
from django_ojs.operations.fetch import fetch
from django_ojs.operations.workers import rescue
from django_ojs.spec.errors import Conflict, JobNotFound
from django_ojs.spec.failure import UNKNOWN_JOB_TYPE, Failure
from django_ojs.spec.progress import Report
from django_ojs.spec.states import WAITING, State
from django_ojs.spec.suggestions import did_you_mean
from django_ojs.storage import database, transitions
from django_ojs.storage.claimed_job import Claimed
from django_ojs.storage.dialects.rows import ALL_RULES, ClaimRequest
from django_ojs.storage.next_starts import next_starts
from django_ojs.storage.transitions import Claim
from django_ojs.testing import runner
from django_ojs.testing.injected_errors import Failures
from django_ojs.testing.savepoints import savepoint
from django_ojs.worker.in_flight import Run

T = TypeVar("T")

#: The id of the worker as which a test runs jobs.
WORKER_ID: Final = "django_ojs.testing"

_UNKNOWN_TYPE: Final = Failure(
    type=UNKNOWN_JOB_TYPE, message="The worker has no handler for this job type."
)


class Rows:
    """The jobs of a test as rows.

    Every step is the operation that a worker calls, on the connection of the test.
    """

    def __init__(self) -> None:
        #: The results of the test's enqueues.
        self.results: list[EnqueuedJob] = []
        self._before = set(Job.primary.values_list("pk", flat=True))
        #: Types without a handler. A drain postpones their jobs, and does not wake them early.
        self._unknown: set[str] = set()

    def push(self, batch: Batch, store: Callable[[], list[EnqueuedJob]]) -> list[EnqueuedJob]:
        results = store()
        self.results += results
        return results

    def jobs(self) -> list[Job]:
        jobs = Job.primary.order_by("created_at", "pk")
        return [job for job in jobs if job.pk not in self._before]

    def add_next_jobs(self) -> None:
        """Let extensions enqueue the jobs that follow ended ones, such as steps of workflows."""
        with savepoint():
            next_jobs()

    def clear(self) -> None:
        keys = [job.pk for job in self.jobs()]
        Job.primary.filter(pk__in=keys).delete()
        for each in registry.for_tests():
            if each.cleared is not None:
                each.cleared(keys)
        self.results.clear()

    def claim(
        self, queue: str | None, early: Sequence[State], woken: dict[UUID, datetime | None]
    ) -> Claimed | None:
        """Claim the next job, of one queue or of all.

        If none is available, claim the first job in a state of `early`, before it is due. `woken`
        keeps when these jobs were due, so that a job that again waits for the same time is left
        alone.
        """
        waiting = Job.primary.filter(state__in=WAITING)
        if queue is None:
            queues = list(waiting.values_list("queue", flat=True).distinct().order_by("queue"))
        else:
            queues = [queue]
        if not queues:
            return None
        waiting = waiting.filter(state__in=early, queue__in=queues).exclude(type__in=self._unknown)
        early_once: set[UUID] = set()
        while True:
            claimed = fetch(queues, count=1, worker_id=WORKER_ID, pool=None)
            if not claimed and next_starts.unread.intersection(queues):
                continue  # The claim dropped or rescheduled as many jobs as it may.
            left = waiting.exclude(pk__in=early_once).order_by("due_at", "pk").only("pk", "due_at")
            others = (job for job in left if job.pk not in woken or woken[job.pk] != job.due_at)
            first = None if claimed else next(others, None)
            if first is None:
                return claimed[0] if claimed else None
            # The next claim promotes it, and may reschedule it at its limit.
            early_once.add(first.pk)
            woken[first.pk] = first.due_at
            # Not the present itself, because the clock may be set back before the claim.
            Job.primary.filter(pk=first.pk).update(due_at=Now() - timedelta(seconds=1))

    def context_of(self, job: Claimed, *, is_async: bool) -> JobContext:
        return JobContext(
            job,
            is_async=is_async,
            heartbeat=lambda job, by: beat.extend(WORKER_ID, job.id, by),
            report=_report,
            extensions=runner.context_functions(),
        )

    def complete(self, run: Run, result: Any, *, committed: bool) -> None:
        """Complete a job, or follow up the completion that an atomic handler has committed."""
        if not committed:
            ack.ack(run.job.id, claim=run.claim, result=result)
            return
        transitions.follow_up_ack(transitions.get(run.job.id))

    def complete_atomic(self, job_id: UUID, **values: Any) -> None:
        """ACK inside the transaction of an atomic handler."""
        ack.complete(job_id, **values)

    def fail(self, run: Run, failure: Failure) -> Job:
        return fail.fail(run.job.id, failure, claim=run.claim)

    def postpone(self, run: Run) -> None:
        self._unknown.add(run.job.type)
        delay = settings().unknown_type_delay
        fail.postpone(run.job.id, _UNKNOWN_TYPE, delay=delay, claim=run.claim)

    def promote(self) -> None:
        """Apply what is due after the clock has moved."""
        with savepoint():
            check = DueCheck()
            for step in (check.promote, check.expire, rescue.lapse):
                while step():
                    pass
        self.add_next_jobs()


class InlineRows(Rows):
    """Runs each job before its enqueue returns, even if it is scheduled, held back or limited."""

    def __init__(self, failures: Failures) -> None:
        super().__init__()
        self._failures = failures
        # For each thread: the jobs that are stored and have not run, and whether it is storing one.
        self._local = _Stored()

    def push(self, batch: Batch, store: Callable[[], list[EnqueuedJob]]) -> list[EnqueuedJob]:
        def stored() -> list[EnqueuedJob]:
            results = super(InlineRows, self).push(batch, store)
            self._local.jobs += [
                job
                for job in results
                if job.outcome is Outcome.STORED and job.state is not State.PENDING
            ]
            return results

        return self.run_what(stored)

    def get(self, job_id: UUID) -> Job | None:
        """Return the job after its run, from which `django.tasks` makes its result."""
        return Job.primary.filter(pk=job_id).first()

    def run_what(self, store: Callable[[], T]) -> T:
        """Store jobs, run them, and return what `store` returns.

        All jobs run, with the later steps of their workflows, before the first exception is raised.
        """
        stored = self._without_running(store)
        if self._local.is_storing:  # The first jobs of a workflow run after it is stored.
            return stored
        errors: list[BaseException] = []
        while self._local.jobs:
            jobs, self._local.jobs = self._local.jobs, []
            for job in jobs:
                try:
                    self._run(job)
                except BaseException as error:
                    if runner.ends_test(error):
                        raise
                    errors.append(error)
            self._without_running(self.add_next_jobs)
        if errors:
            raise errors[0]
        return stored

    def _without_running(self, store: Callable[[], T]) -> T:
        outer, self._local.is_storing = self._local.is_storing, True
        try:
            return store()
        finally:
            self._local.is_storing = outer

    def _run(self, stored: EnqueuedJob) -> None:
        """Run a job, and store its outcome. Exceptions are raised."""
        handler = get_handler(stored.type)
        if handler is None:
            known = did_you_mean(stored.type, job_types())
            raise LookupError(f"The job type {stored.type!r} has no handler here. {known}")
        with savepoint():
            job = self._claim_one(stored)
        if job is None:
            return  # It was cancelled, or expired before it was enqueued.
        context = self.context_of(job, is_async=handler.is_async)
        run = runner.new_run(job, handler, context, self._failures)
        try:
            result, committed = runner.call(run, self.complete_atomic)
        except BaseException as error:
            if not runner.ends_test(error):
                with suppress(Conflict, JobNotFound), savepoint():
                    self.fail(run, runner.failure_of(run, error))
            raise
        # The handler may have cancelled or deleted its own job: as in a worker, the result is
        # ignored.
        with suppress(Conflict, JobNotFound), savepoint():
            if isinstance(result, Suspended):
                result.store()
            else:
                self.complete(run, result, committed=committed)

    def _claim_one(self, stored: EnqueuedJob) -> Claimed | None:
        """Claim this job, whatever the state of its queue and its limits."""
        if stored.state is State.SCHEDULED:
            run_now.run_now(stored.id)
        link = database.connection()
        request = ClaimRequest(
            queue=stored.queue,
            limit=1,
            worker_id=WORKER_ID,
            lease_ms=int(settings().visibility_timeout / timedelta(milliseconds=1)),
            applied=ALL_RULES,
        )
        rows = database.dialect_of(link).claim_chosen(link, [stored.id], request)
        return Claimed(rows[0]) if rows else None


class _Stored(threading.local):
    def __init__(self) -> None:
        self.jobs: list[EnqueuedJob] = []
        self.is_storing = False


def _report(job: Claimed, reported: Report) -> bool:
    # A worker writes reports on another connection, which does not see the transaction of a test.
    claim = Claim(worker_id=job.worker_id, run=job.run)
    return progress.report(job.id, reported, claim=claim).state == State.ACTIVE

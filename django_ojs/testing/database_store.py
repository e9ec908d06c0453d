"""The jobs of a test in real mode: rows of its database."""

from collections.abc import Callable, Sequence
from typing import Any, Final
from uuid import UUID

from django.db.models.functions import Now

from django_ojs import signals
from django_ojs.conf import settings
from django_ojs.context import JobContext
from django_ojs.models import EndedWorkflowJob, Job, Workflow, WorkflowStep
from django_ojs.operations import ack, beat, checkpoint, fail, progress, workflows
from django_ojs.operations.due_check import DueCheck
from django_ojs.operations.enqueue.result import EnqueuedJob
from django_ojs.operations.events import publish
from django_ojs.operations.fetch import fetch
from django_ojs.operations.workers import rescue
from django_ojs.spec import json
from django_ojs.spec.envelope import Envelope
from django_ojs.spec.failure import Failure
from django_ojs.spec.progress import Report
from django_ojs.spec.states import WAITING, State
from django_ojs.spec.workflow import Graph
from django_ojs.storage import transitions
from django_ojs.storage.claims import Claimed
from django_ojs.storage.figures import rollups
from django_ojs.storage.queue_limits import next_starts
from django_ojs.storage.transitions import Claim
from django_ojs.testing.savepoints import savepoint
from django_ojs.testing.store import UNKNOWN_TYPE
from django_ojs.worker.in_flight import Run

#: The worker that `drain` is.
WORKER_ID: Final = "django_ojs.testing"


class DatabaseStore:
    """Every step is the operation that a worker calls, on the connection of the test."""

    def __init__(self) -> None:
        self.results: list[EnqueuedJob] = []
        self._before = set(Job.primary.values_list("pk", flat=True))
        #: Types without a handler: their jobs are postponed for ever.
        self._unknown: set[str] = set()

    def push(
        self,
        envelopes: Sequence[Envelope],
        *,
        batch: bool,
        store: Callable[[], list[EnqueuedJob]],
    ) -> list[EnqueuedJob]:
        results = store()
        self.results += results
        return results

    def jobs(self) -> list[Job]:
        jobs = Job.primary.order_by("created_at", "pk")
        return [job for job in jobs if job.pk not in self._before]

    def read(self, job_id: UUID) -> Job:
        return transitions.get(job_id)

    def get(self, job_id: UUID) -> None:
        return None

    def attempts(self, job_id: UUID) -> None:
        return None

    def cancel(self, job_id: UUID) -> None:
        return None

    def create_workflow(self, graph: Graph, queues: Sequence[str]) -> None:
        return None

    def workflow(self, workflow_id: UUID) -> None:
        return None

    def step_ids(self, workflow_id: UUID) -> None:
        return None

    def cancel_workflow(self, workflow_id: UUID) -> None:
        return None

    def advance_workflows(self) -> None:
        with savepoint():
            workflows.advance_due()

    def clear(self) -> None:
        keys = [job.pk for job in self.jobs()]
        Job.primary.filter(pk__in=keys).delete()
        # A step has the id of its job. Without its workflow no deleted job counts as failed.
        steps = WorkflowStep.primary.filter(pk__in=keys)
        begun = set(steps.values_list("workflow_id", flat=True))
        for model in (EndedWorkflowJob, WorkflowStep):
            model.primary.filter(workflow_id__in=begun).delete()
        Workflow.primary.filter(pk__in=begun).delete()
        self.results.clear()

    def claim(self, queue: str | None, early: Sequence[State]) -> Claimed | None:
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
                continue  # It dropped or rescheduled as many jobs as one claim may.
            left = waiting.exclude(pk__in=early_once).order_by("due_at", "pk")
            first = None if claimed else left.first()
            if first is None:
                return claimed[0] if claimed else None
            # The next claim promotes it, and may reschedule it at its limit.
            early_once.add(first.pk)
            Job.primary.filter(pk=first.pk).update(due_at=Now())

    def context_of(self, job: Claimed, *, is_async: bool) -> JobContext:
        return JobContext(
            job,
            is_async=is_async,
            heartbeat=lambda job, by: beat.extend(WORKER_ID, job.id, by),
            report=_report,
            save=_save,
        )

    def complete(self, run: Run, result: Any, *, committed: bool) -> None:
        if not committed:
            ack.ack(run.job.id, claim=run.claim, result=result)
            return
        rollups.completed_after_commit(transitions.get(run.job.id))
        publish.send_all_after_commit(signals.job_completed, [run.job.id])

    def complete_atomic(self, job_id: UUID, **values: Any) -> None:
        ack.complete(job_id, **values)

    def fail(self, run: Run, failure: Failure) -> Job:
        return fail.fail(run.job.id, failure, claim=run.claim)

    def postpone(self, run: Run) -> None:
        self._unknown.add(run.job.type)
        delay = settings().unknown_type_delay
        fail.postpone(run.job.id, UNKNOWN_TYPE, delay=delay, claim=run.claim)

    def promote(self) -> None:
        with savepoint():
            check = DueCheck()
            for step in (check.promote, check.expire, rescue.lapse):
                while step():
                    pass
        self.advance_workflows()


def _report(job: Claimed, reported: Report) -> bool:
    # A worker writes it on another connection, which does not see the transaction of a test.
    claim = Claim(worker_id=job.worker_id, run=job.run)
    return progress.report(job.id, reported, claim=claim).state == State.ACTIVE


def _save(job: Claimed, state: json.JSON) -> None:
    # As above.
    claim = Claim(worker_id=job.worker_id, run=job.run)
    checkpoint.save(job.id, state, claim=claim)

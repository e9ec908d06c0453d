"""Where the jobs of a test are: the interface of the two stores."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol
from uuid import UUID

from django_ojs.context import JobContext
from django_ojs.models import Attempt, Job, Workflow
from django_ojs.operations.enqueue.result import EnqueuedJob
from django_ojs.spec.envelope import Envelope
from django_ojs.spec.failure import UNKNOWN_JOB_TYPE, Failure
from django_ojs.spec.states import State
from django_ojs.spec.workflow import Graph
from django_ojs.storage.claims import Claimed
from django_ojs.worker.in_flight import Run

UNKNOWN_TYPE = Failure(
    type=UNKNOWN_JOB_TYPE, message="The worker has no handler for this job type."
)


class Store(Protocol):
    """The jobs of one test, and the operations of the worker that `drain` is."""

    #: The results of the test's enqueues.
    results: list[EnqueuedJob]

    def push(
        self,
        envelopes: Sequence[Envelope],
        *,
        batch: bool,
        store: Callable[[], list[EnqueuedJob]],
    ) -> list[EnqueuedJob]:
        """Store the jobs of an enqueue, and note the results."""

    def jobs(self) -> list[Job]:
        """Return the jobs that the test has enqueued, in order."""

    def read(self, job_id: UUID) -> Job:
        """Return a job as it is now. Raises JobNotFound."""

    def get(self, job_id: UUID) -> Job | None:
        """Return a job that is not in the database; None if jobs are there."""

    def attempts(self, job_id: UUID) -> list[Attempt] | None:
        """Return the failed runs of a job that is not in the database; None if jobs are there."""

    def cancel(self, job_id: UUID) -> tuple[Job, State] | None:
        """Cancel a job that is not in the database; None if jobs are there."""

    def create_workflow(self, graph: Graph, queues: Sequence[str]) -> Workflow | None:
        """Keep a workflow that is not in the database; None if workflows are there."""

    def workflow(self, workflow_id: UUID) -> Workflow | None:
        """Return a workflow that is not in the database; None if workflows are there."""

    def step_ids(self, workflow_id: UUID) -> list[UUID] | None:
        """Return the ids of the jobs of a workflow that is not in the database, or None."""

    def cancel_workflow(self, workflow_id: UUID) -> Workflow | None:
        """Cancel a workflow that is not in the database; None if workflows are there."""

    def advance_workflows(self) -> None:
        """Start the steps that waited for jobs that have ended."""

    def clear(self) -> None:
        """Delete the jobs that the test has enqueued."""

    def claim(self, queue: str | None, early: Sequence[State]) -> Claimed | None:
        """Claim the next job, of one queue or of all.

        Where none is available, the first of those in a state of `early`, before it is due.
        """

    def context_of(self, job: Claimed, *, is_async: bool) -> JobContext:
        """Return the context of a run."""

    def complete(self, run: Run, result: Any, *, committed: bool) -> None:
        """ACK; `committed`: an atomic handler has done so."""

    def complete_atomic(self, job_id: UUID, **values: Any) -> None:
        """ACK inside the transaction of an atomic handler."""

    def fail(self, run: Run, failure: Failure) -> Job:
        """FAIL."""

    def postpone(self, run: Run) -> None:
        """FAIL of a job that has no handler."""

    def promote(self) -> None:
        """Apply what is due after the clock has moved."""

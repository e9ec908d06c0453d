"""Lets `django_ojs.testing` watch enqueues, or take their place; in production there is none."""

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from django_ojs.models import Job, Workflow
from django_ojs.spec.envelope import Envelope
from django_ojs.spec.states import State
from django_ojs.spec.workflow import Graph


class Interceptor:
    """Receives the calls of the operations of one test, and leaves them to the database.

    A subclass that keeps jobs elsewhere returns them, where this one returns None.
    """

    def push(
        self, envelopes: Sequence[Envelope], *, batch: bool, store: Callable[[], list[Any]]
    ) -> list[Any]:
        """Store jobs, by `store` or elsewhere, and return their EnqueuedJobs in order."""
        return store()

    def get(self, job_id: UUID) -> Job | None:
        """Return a job."""
        return None

    def lock(self, job_id: UUID) -> None:
        """Reject a change of a job that has no row."""

    def cancel(self, job_id: UUID) -> tuple[Job, State] | None:
        """Cancel a job, and return it with its previous state."""
        return None

    def create_workflow(
        self, graph: Graph, queues: Sequence[str], store: Callable[[], Workflow]
    ) -> Workflow:
        """Store a workflow, by `store` or elsewhere."""
        return store()

    def workflow(self, workflow_id: UUID) -> Workflow | None:
        """Return a workflow."""
        return None

    def step_ids(self, workflow_id: UUID) -> list[UUID] | None:
        """Return the ids of the jobs of a workflow."""
        return None

    def cancel_workflow(self, workflow_id: UUID) -> Workflow | None:
        """Cancel a workflow."""
        return None


#: Returns the interceptor of the running test, or None. In production there is no such function.
find: Callable[[], Interceptor | None] | None = None


def install(finder: Callable[[], Interceptor | None]) -> None:
    """Let `current` return what this function returns."""
    global find
    find = finder


def current() -> Interceptor | None:
    """Return the interceptor of the running test, or None."""
    return None if find is None else find()

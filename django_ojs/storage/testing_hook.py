"""Lets `django_ojs.testing` take the place of the database; in production there is none."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol
from uuid import UUID

from django_ojs.models import Attempt, Job, Workflow
from django_ojs.spec.envelope import Envelope
from django_ojs.spec.states import State
from django_ojs.spec.workflow import Graph


class Interceptor(Protocol):
    """Receives the calls of the operations of one test."""

    def push(
        self, envelopes: Sequence[Envelope], *, batch: bool, store: Callable[[], list[Any]]
    ) -> list[Any]:
        """Store jobs, by `store` or elsewhere, and return their EnqueuedJobs in order."""
        ...

    def get(self, job_id: UUID) -> Job | None:
        """Return a job that is kept elsewhere; None where jobs are in the database."""
        ...

    def attempts(self, job_id: UUID) -> list[Attempt] | None:
        """Return the ended runs of a job that is kept elsewhere, or None as `get` does."""
        ...

    def cancel(self, job_id: UUID) -> tuple[Job, State] | None:
        """Cancel a job that is kept elsewhere; None where jobs are in the database."""
        ...

    def create_workflow(self, graph: Graph, queues: Sequence[str]) -> Workflow | None:
        """Keep a workflow elsewhere; None where workflows are in the database."""
        ...

    def workflow(self, workflow_id: UUID) -> Workflow | None:
        """Return a workflow that is kept elsewhere; None where they are in the database."""
        ...

    def step_ids(self, workflow_id: UUID) -> list[UUID] | None:
        """Return the ids of its jobs; None where workflows are in the database."""
        ...

    def cancel_workflow(self, workflow_id: UUID) -> Workflow | None:
        """Cancel a workflow that is kept elsewhere; None where they are in the database."""
        ...


_find: Callable[[], Interceptor | None] | None = None


def install(find: Callable[[], Interceptor | None]) -> None:
    """Let `current` return what `find` returns."""
    global _find
    _find = find


def current() -> Interceptor | None:
    """Return the interceptor of the running test, or None."""
    return None if _find is None else _find()

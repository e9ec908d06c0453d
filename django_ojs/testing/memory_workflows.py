"""The workflows of a test in the modes fake and inline: in memory, without a database."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from django.utils import timezone

from django_ojs.models import Job, Workflow
from django_ojs.models.workflow import WorkflowState
from django_ojs.operations.enqueue.result import EnqueuedJob
from django_ojs.operations.workflows.cancellation import check_running
from django_ojs.operations.workflows.queries import not_found
from django_ojs.operations.workflows.starting import envelope_of
from django_ojs.spec import ids
from django_ojs.spec.envelope import Envelope
from django_ojs.spec.errors import DuplicateJob
from django_ojs.spec.json import JSON
from django_ojs.spec.states import TERMINAL, State
from django_ojs.spec.workflow import Graph, GraphStep, StepOutcome, evaluate

Push = Callable[[Sequence[Envelope]], list[EnqueuedJob]]
Find = Callable[[UUID], Job | None]


class MemoryWorkflows:
    """Workflows as unsaved models; `push` and `find` reach the jobs of the same test."""

    def __init__(self, push: Push, find: Find) -> None:
        self._push = push
        self._find = find
        self._all: dict[UUID, _Run] = {}
        self._is_advancing = False

    def create(self, graph: Graph, queues: Sequence[str]) -> Workflow:
        """Keep a workflow, and enqueue the jobs of its first steps."""
        run = _Run(graph, queues)
        self._all[run.workflow.pk] = run
        try:
            self.advance()
        except DuplicateJob:
            del self._all[run.workflow.pk]
            raise
        return run.workflow

    def get(self, workflow_id: UUID) -> Workflow:
        """Return a workflow. Raises WorkflowNotFound."""
        self.advance()
        return self._run(workflow_id).workflow

    def step_ids(self, workflow_id: UUID) -> list[UUID]:
        """Return the ids of the jobs of a workflow, those of later steps included."""
        return list(self._run(workflow_id).ids.values())

    def cancel(self, workflow_id: UUID) -> list[UUID]:
        """Cancel a workflow, and return its jobs. Raises as `operations.workflows.cancel` does."""
        self.advance()
        run = self._run(workflow_id)
        check_running(run.workflow)
        run.end(WorkflowState.CANCELLED)
        return list(run.jobs.values())

    def clear(self) -> None:
        self._all.clear()

    def advance(self) -> None:
        """Note the jobs that have ended, and start the steps that waited for them.

        A job that runs inside its enqueue may raise: the first exception is raised at the end.
        """
        # A job that runs inside its enqueue ends while its step is started.
        if self._is_advancing:
            return
        self._is_advancing = True
        errors: list[BaseException] = []
        try:
            while any(self._advance_or_note(run, errors) for run in list(self._all.values())):
                pass
        finally:
            self._is_advancing = False
        if errors:
            raise errors[0]

    def _advance_or_note(self, run: "_Run", errors: list[BaseException]) -> bool:
        started = len(run.jobs)
        try:
            return self._advance(run)
        except DuplicateJob:
            raise  # The workflow is rejected: none of its other jobs is enqueued.
        except (Exception, SystemExit) as error:
            errors.append(error)
            # Otherwise it would raise again.
            return len(run.jobs) > started

    def _advance(self, run: "_Run") -> bool:
        """Advance one workflow; return whether a step started or ended."""
        if run.workflow.state != WorkflowState.RUNNING:
            return False
        before = len(run.jobs) + len(run.outcomes)
        ready: list[GraphStep] = []
        for step in run.graph.steps:
            if step.key in run.outcomes:
                continue
            if step.key in run.jobs:
                run.note(step, self._find(run.jobs[step.key]))
            elif all(key in run.outcomes for key in step.depends_on):
                outcome = evaluate(step, [run.outcomes[key] for key in step.depends_on])
                if outcome is None:
                    ready.append(step)
                else:
                    run.outcomes[step.key] = outcome
        # All or none: a duplicate among the first jobs rejects the workflow.
        self._start(run, [step for step in ready if not step.depends_on])
        for step in ready:
            if step.depends_on:
                # A job that was not stored is not found, which fails its step.
                with suppress(DuplicateJob):
                    self._start(run, [step])
        if len(run.outcomes) == len(run.graph.steps):
            run.end(WorkflowState.FAILED if run.has_failed() else WorkflowState.COMPLETED)
        return len(run.jobs) + len(run.outcomes) > before

    def _start(self, run: "_Run", steps: Sequence[GraphStep]) -> None:
        envelopes: list[Envelope] = []
        for step in steps:
            assert step.job is not None
            job_id = run.jobs[step.key] = run.ids[step.key]
            results = [run.result(key) for key in step.parents]
            envelopes.append(envelope_of(job_id, run.workflow.pk, step.job, results))
        if envelopes:
            self._push(envelopes)

    def _run(self, workflow_id: UUID) -> "_Run":
        if workflow_id not in self._all:
            raise not_found(workflow_id)
        return self._all[workflow_id]


class _Run:
    """A workflow, and how far it is."""

    def __init__(self, graph: Graph, queues: Sequence[str]) -> None:
        self.graph = graph
        self.workflow = Workflow(
            type=graph.type,
            name=graph.name,
            queues=list(queues),
            jobs_total=sum(step.callback is None for step in graph.jobs),
            steps_left=len(graph.steps),
            created_at=timezone.now(),
        )
        self.ids = {step.key: ids.uuid7() for step in graph.jobs}
        #: Of the steps that have started.
        self.jobs: dict[str, UUID] = {}
        self.outcomes: dict[str, StepOutcome] = {}
        self._results: dict[str, JSON] = {}
        self._steps = {step.key: step for step in graph.steps}

    def note(self, step: GraphStep, job: Job | None) -> None:
        """Note how a job ended, if it has; None for one that was not stored or was deleted."""
        if job is not None and job.state not in TERMINAL:
            return
        succeeded = job is not None and job.state == State.COMPLETED
        self.outcomes[step.key] = StepOutcome.SUCCEEDED if succeeded else StepOutcome.FAILED
        self._results[step.key] = job.result if job is not None else None
        if step.callback is None:
            self.workflow.jobs_completed += succeeded
            self.workflow.jobs_failed += not succeeded

    def result(self, key: str) -> Any:
        """Return the result of a step."""
        step = self._steps[key]
        if not step.is_join:
            return self._results.get(key)
        results = [self.result(each) for each in step.parents]
        return results[-1] if step.last_result else results

    def has_failed(self) -> bool:
        return any(
            step.fails_workflow and self.outcomes[step.key] is StepOutcome.FAILED
            for step in self.graph.steps
        )

    def end(self, state: WorkflowState) -> None:
        self.workflow.state = state
        self.workflow.steps_left = 0
        self.workflow.finished_at = timezone.now()

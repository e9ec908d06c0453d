"""Durable steps: a hook around each run, and the deletion of steps whose jobs are deleted."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from django_ojs.extension import Declared, DueStep, Extension, Hooks
from django_ojs.extensions.steps import gathering, run_steps, transfer
from django_ojs.extensions.steps.errors import StepError
from django_ojs.extensions.steps.models import SPENT, Step
from django_ojs.extensions.steps.run_steps import Steps, Suspension
from django_ojs.extensions.steps.settings import StepsSettings
from django_ojs.spec.states import Trigger
from django_ojs.storage.dialects.expressions import OneOf
from django_ojs.worker.in_flight import Run

if TYPE_CHECKING:
    from django_ojs.finding import Finding

#: Held while the Steps of a run are created: two threads of a handler may need them at once.
_making: Final = Lock()


class _Taken:
    """The Steps of a run, created when its handler takes the first: most handlers take none."""

    __slots__ = ("run", "steps")

    def __init__(self, run: Run) -> None:
        self.run = run
        #: In a test they are created now, to note the transactions that the test has open.
        self.steps = None if run_steps.is_thread_of_worker() else Steps(run)

    def made(self) -> Steps:
        """Return the steps; create them if they do not exist yet."""
        with _making:
            if self.steps is None:
                self.steps = Steps(self.run)
            return self.steps


_current: Final[ContextVar[_Taken | None]] = ContextVar("ojs_steps", default=None)


class StepsExtension(Extension):
    """Lets handlers take steps."""

    name = "steps"
    number = 20
    settings = StepsSettings
    openapi = Path(__file__).with_name("openapi.yaml")

    def hooks(self) -> Hooks:
        """Return the hooks; no setting changes them."""
        return Hooks(
            around_run=_around_run,
            published=gathering.ended,
            published_types=gathering.ENDS,
            changed_and_committed=dict.fromkeys(
                (Trigger.CANCEL, Trigger.EXPIRE), gathering.parents_ended
            ),
            erased=_erased,
            shown=_shown,
            exported=transfer.exported,
            imported=transfer.imported,
        )

    def due_steps(self) -> Sequence[DueStep]:
        """Delete old signals, and wake jobs that another process did not wake."""
        from django_ojs.extensions.steps import pruning

        asleep = gathering.LeftAsleep()
        return (
            DueStep(run=pruning.prune_signals, interval=60.0),
            DueStep(run=asleep.wake, interval=60.0, batch=gathering.WALK),
        )

    def routes(self) -> Sequence[Any]:
        """Return the routes for workers in other languages."""
        from django_ojs.extensions.steps import views
        from django_ojs.http.routing import route

        job = "v1/jobs/<str:key>/steps"
        return (
            route(job, views.JobSteps, "ojs-job-steps"),
            route(f"{job}/suspend", views.JobSuspension, "ojs-job-suspend"),
            route("v1/signals", views.Signals, "ojs-signals"),
        )

    def manifest(self) -> Sequence[Declared]:
        """Declare steps as a feature of our own."""
        return (Declared(custom="django-ojs:steps"),)

    def may_find(self) -> str:
        """Return the SQL condition that a job is scheduled, as is each job that waits in a step."""
        from django_ojs.extensions.steps.findings import condition

        return condition()

    def findings(self) -> Sequence["Finding"]:
        """Return what operators should know about steps."""
        from django_ojs.extensions.steps import findings

        return findings.found()

    def page_urls(self, page: Any) -> Sequence[Any]:
        """Return the address of the actions on a step."""
        from django_ojs.extensions.steps import admin

        return admin.urls(page)

    def panels(self) -> Sequence[Any]:
        """Return the steps on the page of a job."""
        from django_ojs.extensions.steps import admin

        return (admin.PANEL,)

    def waits_for(self, jobs: Sequence[Any]) -> Mapping[UUID, str]:
        """Return what these jobs wait for in their steps."""
        from django_ojs.extensions.steps import wait_sentences

        return wait_sentences.of(jobs)


def current() -> Steps:
    """Return the steps of the run in this context. Raises StepError outside of a run."""
    taken = _current.get()
    if taken is None:
        raise StepError("Only the handler of a job can take steps, on its thread or in its tasks.")
    return taken.made()


def _around_run(run: Run, go_on: Callable[[], Any]) -> Any:
    taken = _Taken(run)
    if run.context.is_async:
        return _around_async_run(taken, go_on)
    token = _current.set(taken)
    try:
        outcome = go_on()
        if taken.steps is not None:
            taken.steps.finish()
        return outcome
    except Suspension as suspension:
        return suspension.suspended, False
    finally:
        _current.reset(token)


async def _around_async_run(taken: _Taken, go_on: Callable[[], Any]) -> Any:
    token = _current.set(taken)
    try:
        outcome = await go_on()
        if taken.steps is not None:
            await taken.steps.afinish()
        return outcome
    except Suspension as suspension:
        return suspension.suspended
    finally:
        _current.reset(token)


def _shown(job: Any) -> Mapping[str, Any]:
    return {SPENT: job.spent} if job.returned else {}


def _erased(keys: Collection[UUID]) -> None:
    Step.primary.filter(OneOf("job_id", keys)).delete()

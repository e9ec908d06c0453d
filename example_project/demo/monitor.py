"""Wait until all workflows have ended, and kill a worker half-way."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from django.db.models import Count

from django_ojs.extensions.workflows.models import StepState, WorkflowStep
from django_ojs.models import Attempt, Job
from django_ojs.spec.states import State
from example_project.demo.cleanup import JOB_TYPES
from example_project.demo.kill import Killed, kill_one
from example_project.demo.progress import Progress
from example_project.demo.workers import Workers

_POLL_SECONDS = 0.25
#: The states of steps that are not over.
_NOT_OVER = (StepState.WAITING, StepState.READY, StepState.ENQUEUED)
#: A worker is killed when this share of the steps is over.
_KILL_AT = 0.4
#: Without progress for this long, the wait ends, and the ledger shows what is not finished.
_STALLED_AFTER_SECONDS = 90.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """The result: the duration and the worker that was killed."""

    seconds: float
    killed: Killed | None
    stalled: bool = False


def wait_for_workflows(
    workers: Workers, progress: Progress, *, each_time: Callable[[], object]
) -> Run:
    """Return when every step is over, there is no progress, or no worker is alive.

    `each_time` is called whenever the states were read.
    """
    started = changed = time.monotonic()
    killed: Killed | None = None
    before: Counter[str] = Counter()
    while True:
        now = time.monotonic()
        steps = step_states()
        done = steps.total() - sum(steps[state] for state in _NOT_OVER)
        states = _job_states()
        changed = changed if steps + states == before else now
        before = steps + states
        each_time()
        progress.show(done, _note(states))
        if done >= progress.total:
            return Run(seconds=now - started, killed=killed)
        if not workers.running or now - changed > _STALLED_AFTER_SECONDS:
            return Run(seconds=now - started, killed=killed, stalled=True)
        if killed is None and done >= _KILL_AT * progress.total:
            killed = kill_one(workers.sessions)
            if killed:
                progress.write_line(
                    f"killed worker pid {killed.pid} with {len(killed.jobs)} jobs in flight"
                )
        time.sleep(_POLL_SECONDS)


def step_states() -> Counter[str]:
    """Count the steps of the shop's workflows by state."""
    steps = WorkflowStep.objects.filter(type__in=JOB_TYPES)
    return Counter(dict(steps.values_list("state").annotate(Count("pk"))))


def _job_states() -> Counter[str]:
    rows = Job.objects.filter(type__in=JOB_TYPES).values_list("state").annotate(Count("pk"))
    return Counter(dict(rows))


def _note(states: Counter[str]) -> str:
    failed = Attempt.objects.filter(job__type__in=JOB_TYPES, outcome="failed").count()
    parts = {"running": states[State.ACTIVE], "retrying": states[State.RETRYABLE]}
    return "  ".join(f"{name} {n:,}" for name, n in {**parts, "failed runs": failed}.items())

"""Read what jobs did in worker processes, and send messages to their handlers."""

from __future__ import annotations

from uuid import UUID

from django_ojs.models import Job
from django_ojs.operations.enqueue.result import EnqueuedJob
from tests.factories import in_line, jobs
from tests.testapp.models import Mark
from tests.worker.waiting import BOUND, eventually

#: Handlers leave their marks on the second alias.
ALIASES = ["default", "other"]


def stored(job: EnqueuedJob) -> Job:
    """Return the job that an enqueue stored, as it was then."""
    (found,) = in_line([job])
    return found


def marks(job: Job) -> list[str]:
    """Return the events that the handler recorded, in order."""
    return list(
        Mark.objects.using("other")
        .filter(job_id=job.pk, run__gt=0)
        .order_by("id")
        .values_list("event", flat=True)
    )


def runs(job: Job, event: str = "started") -> list[tuple[int, int]]:
    """Return (attempt, run) of each run that noted the event."""
    return list(
        Mark.objects.using("other")
        .filter(job_id=job.pk, run__gt=0, event=event)
        .order_by("id")
        .values_list("attempt", "run")
    )


def release(job: Job, event: str = "go") -> None:
    """Send a message to a handler."""
    Mark.objects.using("other").create(job_id=job.pk, event=event)


def started(job: Job, times: int = 1) -> None:
    """Wait until a job's handler runs, for the n-th time."""
    eventually(lambda: len(runs(job)) >= times, f"run {times} of {job} has started")


def becomes(job: Job, *states: str, within: float = BOUND) -> Job:
    """Wait until a job is in one of these states, and return it."""

    def there() -> bool:
        job.refresh_from_db()
        return job.state in states

    try:
        eventually(there, "", within=within)
    except AssertionError:
        raise AssertionError(
            f"{job.type} is {job.state} after {within:.0f} s, not {' or '.join(states)}; "
            f"its handler noted {marks(job)}, its history {history(job)}"
        ) from None
    return job


def history(job: Job) -> list[tuple[int, str, str]]:
    """Return (attempt, outcome, error type) of each run that did not complete."""
    return [
        (attempt.attempt, attempt.outcome, (attempt.error or {}).get("type", ""))
        for attempt in job.attempts.order_by("id")
    ]


def unfinished(keys: list[UUID]) -> int:
    """Return how many of these jobs are not completed."""
    return jobs().filter(pk__in=keys).exclude(state="completed").count()

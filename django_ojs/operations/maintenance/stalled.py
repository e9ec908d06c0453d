"""Progress that stalls (ojs-progress §11): an event, where `KEEP_EVENTS` names it, and a metric."""

from collections import Counter
from collections.abc import Collection
from typing import Final
from uuid import UUID

from django.db.models import QuerySet
from django.utils import timezone

from django_ojs.conf import settings
from django_ojs.hooks import is_published, publish_all
from django_ojs.models import Job
from django_ojs.spec import progress
from django_ojs.spec.published import EventType, NewEvent, of_run
from django_ojs.spec.states import State
from django_ojs.spec.times import format_timestamp
from django_ojs.storage import database

#: The most jobs that one step publishes.
BATCH: Final = 100


def tell_stalled() -> int:
    """Publish each run whose reports of progress have stopped, once until it reports again.

    A run that never reported is left out. Return how many.
    """
    if not is_published(EventType.PROGRESS_STALLED):
        return 0
    silent = _silent().filter(progress__stalled__isnull=True)
    return _tell(silent.values_list("pk", flat=True)[:BATCH]) if silent.exists() else 0


def by_queue(within: Collection[str] | None = None) -> Counter[str]:
    """Return how many runs of each queue have stalled, without queues that have none.

    It reads the active jobs, of which there are few.
    """
    silent = _silent() if within is None else _silent().filter(queue__in=sorted(within))
    runs = silent.values_list("queue", "run", "progress__run")
    return Counter(queue for queue, run, reported in runs if reported == run)


def _silent() -> QuerySet[Job]:
    """Return the active jobs whose last report is old: of this run, or of an earlier one."""
    late = format_timestamp(timezone.now() - settings().progress_stalled_after)
    return Job.primary.filter(state=State.ACTIVE, progress__updated_at__lt=late)


@database.write_transaction
def _tell(silent: QuerySet[Job, UUID]) -> int:
    # The rows are locked, so that no report is overwritten; one that came before the lock counts.
    held = list(
        _silent().filter(pk__in=list(silent)).select_for_update(skip_locked=True, no_key=True)
    )
    late = timezone.now() - settings().progress_stalled_after
    stalled = [job for job in held if progress.is_stalled(job.progress, run=job.run, since=late)]
    # Reports of an earlier run are marked as well, so that the next call finds others; the first
    # report of the run removes the mark.
    for job in held:
        Job.primary.filter(pk=job.pk).update(progress={**job.progress, "stalled": True})
    publish_all(map(_event, stalled))
    return len(stalled)


def _event(job: Job) -> NewEvent:
    known = job.progress or {}
    data = {"last_update": known.get("updated_at")}
    if known.get("progress") is not None:
        data["last_progress"] = known["progress"]
    return of_run(EventType.PROGRESS_STALLED, job, **data)

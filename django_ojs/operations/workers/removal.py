"""Remove the rows of workers that ended: those that shut down, and those that died."""

from collections.abc import Mapping
from typing import Literal

from django.db.models import QuerySet
from django.db.models.functions import Now

from django_ojs.hooks import publish
from django_ojs.models import Worker
from django_ojs.models.worker import Directive
from django_ojs.spec.published import EventType, of_worker
from django_ojs.spec.times import milliseconds_between
from django_ojs.storage import database

#: Why a worker stopped (ojs-events §4.3).
Reason = Literal["shutdown", "signal", "error"]


def remove(
    worker_id: str, *, reason: Reason = "shutdown", jobs_completed: int | None = None
) -> None:
    """Remove a worker that ended and holds no jobs (worker-protocol §3.4)."""
    remove_all(Worker.primary.filter(pk=worker_id), reason, jobs_completed=jobs_completed)


def remove_all(
    workers: QuerySet[Worker],
    reason: Reason,
    *,
    jobs_completed: int | None = None,
    jobs_rescued: Mapping[str, int] | None = None,
    exit_code: int | None = None,
) -> None:
    """Delete the rows of these workers, and publish one event for each.

    `jobs_rescued` is the number of jobs that were taken back from each; `exit_code` is None if it
    is not known, and negative for a signal.
    """
    if workers.exists():
        _remove(workers, reason, jobs_completed, jobs_rescued, exit_code)


@database.write_transaction
def _remove(
    workers: QuerySet[Worker],
    reason: Reason,
    jobs_completed: int | None,
    jobs_rescued: Mapping[str, int] | None,
    exit_code: int | None,
) -> None:
    database.dialect().read_committed(database.connection())
    # A row that is locked is being deleted by another process, or its worker claims jobs.
    locked = list(workers.select_for_update(skip_locked=True).values_list("pk", flat=True))
    # The condition is checked again, because jobs that were claimed before the rows were locked are
    # visible only now.
    workers = workers.filter(pk__in=locked)
    columns = ("pk", "started_at", "now", "state", "directive")
    found = list(workers.annotate(now=Now()).values_list(*columns))
    for key, since, now, *states in found:
        if reason == "signal" and {*states} == {Directive.RUNNING}:
            # The worker had no job to finish and sent no beat after the signal, so nothing has
            # reported that it was quiet.
            publish(EventType.WORKER_QUIET, of_worker, key, active_jobs=0)
        publish(
            EventType.WORKER_STOPPED,
            of_worker,
            key,
            reason=reason,
            jobs_completed=jobs_completed,
            jobs_rescued=None if jobs_rescued is None else jobs_rescued.get(key, 0),
            exit_code=exit_code,
            # `started_at` is from the worker's clock, which may be ahead.
            uptime_ms=None if since is None else milliseconds_between(since, now),
        )
    workers.filter(pk__in=[key for key, *_ in found]).delete()

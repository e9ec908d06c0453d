"""The statistics: what happens to jobs is counted by minute, queue and type, after its commit.

`storage.figures.rollups` sums up in memory and writes; the readers are beside it.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from django_ojs.conf import settings
from django_ojs.extension import Change, Count, DueStep, Extension, Hooks, Numbers, Reads
from django_ojs.extensions.statistics import rollups
from django_ojs.models import Job
from django_ojs.spec.states import State, Trigger
from django_ojs.spec.times import elapsed


class StatisticsExtension(Extension):
    """Counts."""

    name = "statistics"
    number = 2
    openapi = Path(__file__).with_name("openapi.yaml")

    def hooks(self) -> Hooks:
        """Return the hooks; no setting changes them."""
        return Hooks(
            committed=partial(rollups.add, rollups.ENQUEUED),
            changed_and_committed=_CHANGED,
            reads=dict.fromkeys(_CHANGED, Reads.JOBS),
            counted=_counted,
            worker_passes=rollups.flush_if_due,
            worker_ends=rollups.flush,
        )

    def due_steps(self) -> Sequence[DueStep]:
        """Keep the rollups few."""
        from django_ojs.extensions.statistics import rollup_compaction

        return (
            DueStep(run=fold, interval=10.0, when=condition),
            DueStep(run=rollup_compaction.coarsen, interval=60.0),
        )

    def subcommands(self) -> Sequence[Any]:
        """Return `stats`."""
        from django_ojs.extensions.statistics import command_line as figures

        return figures.SUBCOMMANDS

    def routes(self) -> Sequence[Any]:
        """Return the routes of figures over time."""
        from django_ojs.extensions.statistics import views as stats
        from django_ojs.http.routing import route

        return (
            route("v1/admin/stats", stats.AdminStats, "ojs-admin-stats"),
            route("v1/admin/stats/history", stats.AdminHistory, "ojs-admin-history"),
        )

    def columns(self) -> Sequence[Any]:
        """Return the column of the last hour in the list of queues."""
        from django_ojs.extensions.statistics import admin_columns

        return (admin_columns.LAST_HOUR,)

    def page_urls(self, page: Any) -> Sequence[Any]:
        """Add the page of a type to those of jobs."""
        from django_ojs.extensions.statistics import admin_job_type

        if page.model is not Job:
            return ()
        return (page.pattern("type/", partial(admin_job_type.type_view, page), "type"),)

    def metrics(self, within: Collection[str] | None) -> Iterable[Any]:
        """Return counters of jobs and gauges of queues."""
        from django_ojs.extensions.statistics.metrics import metrics

        return metrics(within)


def fold() -> int:
    """Fold the rollups of past minutes, and add old ones to the all-time sums.

    Return how many rows changed.
    """
    from django_ojs.extensions.statistics import rollup_compaction

    return rollup_compaction.fold() + rollup_compaction.prune(settings().keep_rollups)


def condition() -> str:
    """Whether `fold` may find any, in SQL."""
    from django_ojs.extensions.statistics import rollup_compaction

    return rollup_compaction.condition(settings().keep_rollups)


_COUNTED: Final = {
    Count.REJECTED: rollups.REJECTED,
    Count.PROGRESS_UPDATES: rollups.PROGRESS_UPDATES,
    Count.HISTORY_FAILURES: rollups.HISTORY_FAILURES,
}


def _counted(what: Count, numbers: Numbers) -> None:
    rollups.add(_COUNTED[what], numbers)


def _numbers(change: Change, keys: Iterable[UUID]) -> Numbers:
    jobs = change.jobs()
    return Counter([(jobs[key].queue, jobs[key].type) for key in keys])


def _completed(change: Change) -> None:
    found = change.jobs()
    jobs = [found[key] for key in change.before]
    rollups.note_all(
        rollups.COMPLETED,
        [(job.queue, job.type, 1, _waited(job), _ran(job, change.known.seconds)) for job in jobs],
    )
    rollups.flush_if_due()


def _waited(job: Any) -> float | None:
    if job.started_at is None or job.enqueued_at is None:
        return None
    return elapsed(job.enqueued_at, job.started_at).total_seconds()


def _ran(job: Any, seconds: Mapping[UUID, float]) -> float | None:
    if job.pk in seconds:
        return seconds[job.pk]
    if job.started_at is None or job.finished_at is None:
        return None
    return elapsed(job.started_at, job.finished_at).total_seconds()


def _failed(change: Change) -> None:
    # What a worker cannot run is postponed, and has not failed.
    if change.known.spends:
        rollups.add(rollups.FAILED, _numbers(change, change.before))
        if State.DISCARDED in change.after.values():
            _add_discarded(change)


def _lapsed(change: Change) -> None:
    if change.known.spends:
        numbers = _numbers(change, change.before)
        rollups.add(rollups.FAILED, numbers)
        rollups.add(rollups.LOST, numbers)
        _add_discarded(change)


def _add_discarded(change: Change) -> None:
    ended = [key for key, state in change.after.items() if state is State.DISCARDED]
    rollups.add(rollups.DISCARDED, _numbers(change, ended))


def _dropped(change: Change) -> None:
    # A full queue drops jobs to admit others; a limit by key discards jobs of its own.
    by_queue = change.known.reason == "dropped"
    what = rollups.DROPPED if by_queue else rollups.DISCARDED
    rollups.add(what, _numbers(change, change.before))


_CHANGED: Final[Mapping[Trigger, Callable[[Change], None]]] = {
    Trigger.ACK: _completed,
    Trigger.FAIL: _failed,
    Trigger.LAPSE: _lapsed,
    Trigger.EXPIRE: _add_discarded,
    Trigger.DELETE_QUEUE: _add_discarded,
    Trigger.DROP: _dropped,
}

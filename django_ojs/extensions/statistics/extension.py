"""The statistics: what happens to jobs is counted by minute, queue and type, after its commit.

`rollups` sums up in memory and writes; the modules beside it read.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django_ojs.conf import settings
from django_ojs.extension import DueStep, Extension, Hooks, Reads
from django_ojs.extensions.statistics import rollups
from django_ojs.models import Job

if TYPE_CHECKING:
    from django_ojs.finding import Finding


class StatisticsExtension(Extension):
    """Counts what happens to jobs."""

    name = "statistics"
    number = 2
    openapi = Path(__file__).with_name("openapi.yaml")

    def hooks(self) -> Hooks:
        """Return the hooks; no setting changes them."""
        return Hooks(
            committed=partial(rollups.add, rollups.ENQUEUED),
            changed_and_committed=rollups.CHANGED,
            reads=dict.fromkeys(rollups.CHANGED, Reads.JOBS),
            counted=rollups.count,
            worker_passes=rollups.flush_if_due,
            worker_ends=rollups.flush,
        )

    def due_steps(self) -> Sequence[DueStep]:
        """Merge rollups, so that there are few rows."""
        from django_ojs.extensions.statistics import rollup_compaction

        return (
            DueStep(run=fold, interval=10.0, when=condition),
            DueStep(run=rollup_compaction.coarsen, interval=60.0),
        )

    def may_find(self) -> str:
        """Return the condition that jobs run, or that a run failed in the last minutes."""
        from django_ojs.extensions.statistics import findings, slow_types

        return f"({findings.condition()} OR {slow_types.condition()})"

    def findings(self) -> Sequence["Finding"]:
        """Return the types that fail, and those that are slow."""
        from django_ojs.extensions.statistics import findings, slow_types

        return [*findings.found(), *slow_types.found()]

    def routes(self) -> Sequence[Any]:
        """Return the routes of figures over time, and of how queues are served."""
        from django_ojs.extensions.statistics import views as stats
        from django_ojs.extensions.statistics.scheduling_view import AdminSchedulingStats
        from django_ojs.http.routing import route

        return (
            route("v1/queues/<str:name>/stats", stats.QueueStatistics, "ojs-queue-stats"),
            route("v1/admin/stats", stats.AdminStats, "ojs-admin-stats"),
            route("v1/admin/stats/history", stats.AdminHistory, "ojs-admin-history"),
            route("v1/admin/scheduling/stats", AdminSchedulingStats, "ojs-admin-scheduling-stats"),
        )

    def shown_of_queues(
        self, names: Collection[str], to_operators: bool
    ) -> Iterable[tuple[str, Mapping[str, Any]]]:
        """Return the rates of the last minutes to operators, and to others the sums of the day."""
        from django_ojs.extensions.statistics import rollup_queries, stats

        if to_operators:
            return [(name, stats.rendered(rates)) for name, rates in stats.rates(names).items()]
        today = [(name, *rollup_queries.today(name)) for name in names]
        return [
            (name, {"completed_today": completed, "failed_today": failed})
            for name, completed, failed in today
        ]

    def flows(self, queues: Collection[str]) -> Iterable[tuple[str, Any]]:
        """Return how many jobs came to these queues and left them, by minute."""
        from django_ojs.extensions.statistics import queue_flows

        return queue_flows.flows(queues).items()

    def completed_since(
        self, moments: Mapping[tuple[str, str], datetime]
    ) -> Iterable[tuple[tuple[str, str], int]]:
        """Return how many runs completed since these moments, in whole minutes."""
        from django_ojs.extensions.statistics import rollup_queries

        return rollup_queries.completed_since(moments).items()

    def columns(self) -> Sequence[Any]:
        """Return the column of the last hour in the list of queues."""
        from django_ojs.extensions.statistics import admin_columns

        return (admin_columns.LAST_HOUR,)

    def panels(self) -> Sequence[Any]:
        """Return the figures and charts of the overview and of queues, and a table of types."""
        from django_ojs.extensions.statistics import admin_panels

        return admin_panels.PANELS

    def page_urls(self, page: Any) -> Sequence[Any]:
        """Add the page of a type to the pages of jobs."""
        from django_ojs.extensions.statistics import admin_job_type

        if page.model is not Job:
            return ()
        return (page.pattern("type/", partial(admin_job_type.type_view, page), "type"),)

    def suggestions(self) -> Sequence[tuple[str, Collection[str]]]:
        """Return the types of the jobs to which something happened in the last hour."""
        from django_ojs.extensions.statistics import rollup_queries

        return (("type", rollup_queries.types_lately()),)

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
    """Return the SQL condition that `fold` may find any rows."""
    from django_ojs.extensions.statistics import rollup_compaction

    return rollup_compaction.condition(settings().keep_rollups)

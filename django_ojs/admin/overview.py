"""The overview: whether all is well, what is wrong first, and how much goes through."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from django_ojs.admin import charts
from django_ojs.admin.actions import Action
from django_ojs.admin.base import Pages
from django_ojs.admin.query_timeout import Asking, asking
from django_ojs.models import Overview
from django_ojs.operations import queues
from django_ojs.operations.figures import health, queue_overview, stats
from django_ojs.operations.figures.history import Point, history
from django_ojs.operations.maintenance import mode
from django_ojs.spec.scopes import Scope
from django_ojs.spec.states import State
from django_ojs.storage.figures import oldest_available, rollup_queries
from django_ojs.storage.figures import rollups as stored

#: Queues and types that the overview shows; the pages of their own show all.
SHOWN = 12


class MaintenanceForm(forms.Form):
    """Why everything is stopped."""

    reason = forms.CharField(
        required=False,
        max_length=mode.MAX_REASON,
        help_text="Shown wherever somebody wonders why nothing runs.",
    )


def _stop(request: HttpRequest, obj: Any, values: Mapping[str, Any]) -> str:
    mode.enable(reason=values.get("reason") or None)
    return "Maintenance mode is on: no job is handed out."


def _go_on(request: HttpRequest, obj: Any, values: Mapping[str, Any]) -> str:
    mode.disable()
    return "Maintenance mode is off: jobs are handed out again."


def _what_stops(request: HttpRequest, objects: Sequence[Any]) -> Sequence[str]:
    return (
        "No job of any queue is handed out, and nothing that is due is promoted.",
        "Enqueues are accepted, and jobs that run go on to their end.",
        "It lasts until somebody ends it here or over HTTP.",
    )


class OverviewPages(Pages):
    """One page; its actions are about all queues at once."""

    operations = (
        Action(
            name="stop",
            label="Start maintenance mode",
            done="stopped",
            needs=Scope.ADMIN,
            run=_stop,
            says=_what_stops,
            form=MaintenanceForm,
            destructive=True,
            many=False,
            applies=lambda obj: not obj.stopped,
        ),
        Action(
            name="go-on",
            label="End maintenance mode",
            done="ended",
            needs=Scope.ADMIN,
            run=_go_on,
            many=False,
            applies=lambda obj: bool(obj.stopped),
        ),
    )

    def found(self, request: HttpRequest, keys: Iterable[str]) -> dict[str, Any]:
        """There is one thing here: everything."""
        return {key: self.get_object(request, key) for key in keys}

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> Any:
        """Return what everything is called: no table has it."""
        return Overview(pk=1) if object_id == "1" else None

    def list_page(self, request: HttpRequest) -> HttpResponse:
        """Show it."""
        # This process's own figures, if they are due: it may be one that seldom writes them.
        stored.flush_if_due()
        with asking() as ask:
            context = _look(ask)
        stopped = context["maintenance"] is not None and context["maintenance"].enabled
        here = Overview(pk=1)
        here.stopped = stopped  # type: ignore[attr-defined]  # for `applies` above
        return self.render(
            request, "overview", "Overview", {**context, "buttons": self.buttons(request, here)}
        )


def _look(ask: Asking) -> dict[str, Any]:
    listing = ask("queues", queues.listing)
    statuses = listing.queues if listing else []
    listens = ask("workers", queue_overview.listeners)
    flows = ask("throughput", rollup_queries.flows) or {}
    rows = (
        ask(
            "pressure",
            lambda: queue_overview.overview(
                statuses, flows=flows, oldest={}, listens=listens.by_queue if listens else None
            ),
        )
        or []
    )
    shown = [row.name for row in rows[:SHOWN]]
    waiting = ask("oldest jobs", lambda: oldest_available.oldest(shown)) or {}
    points = ask("history", lambda: history("1m")) or []
    maintenance = ask("maintenance mode", mode.status)
    fresh = ask("new dead letters", health.new_dead_letters)
    wrong = health.findings(
        rows,
        maintenance=maintenance,
        stale=listens.stale if listens else 0,
        fresh_dead=fresh or 0,
        transaction=ask("open transactions", health.oldest_transaction),
    )
    counts = {state: sum(status.counts.get(state, 0) for status in statuses) for state in State}
    return {
        "known": listing is not None,
        "findings": wrong[:20],
        "more_findings": max(0, len(wrong) - 20),
        "maintenance": maintenance,
        "counts": counts,
        "waiting": sum(row.depth for row in rows),
        "rows": [(row, waiting.get(row.name)) for row in rows[:SHOWN]],
        "more_queues": max(0, len(rows) - SHOWN),
        "workers": listens,
        "failing": ask("failing types", lambda: rollup_queries.failing(limit=SHOWN)),
        "unknown": ask.unknown,
        "looked_at": timezone.now(),
        **drawn(points),
    }


def drawn(points: Sequence[Point]) -> dict[str, Any]:
    """Return the charts of some time, and its sums and percentiles."""
    names = [_named(point.timestamp, points) for point in points]
    waited = _added(point.waited for point in points)
    percentiles = [stats.percentiles(point.waited, (50, 95)) for point in points]
    whole = stats.percentiles(waited, (50, 95))
    return {
        "throughput": charts.bars(
            "Jobs in and out",
            names,
            [
                charts.Series(
                    name="completed", kind="done", values=[point.completed for point in points]
                ),
                charts.Series(
                    name="failed runs", kind="failed", values=[point.failed for point in points]
                ),
                charts.Series(
                    name="enqueued",
                    kind="in",
                    values=_but_last([point.enqueued for point in points]),
                    line=True,
                ),
            ],
        ),
        "waits": charts.bars(
            "Waiting before the run",
            names,
            [
                charts.Series(
                    name=f"p{share}",
                    kind=kind,
                    values=[_seconds(one[f"p{share}"]) for one in percentiles],
                    line=True,
                )
                for share, kind in ((50, "in"), (95, "warned"))
            ],
            seconds=True,
        ),
        "waited": charts.histogram("How long jobs waited", waited, kind="in"),
        "ran": charts.histogram("How long jobs ran", _added(point.ran for point in points)),
        "p50": _seconds(whole["p50"]),
        "p95": _seconds(whole["p95"]),
        "enqueued": sum(point.enqueued for point in points),
        "completed": sum(point.completed for point in points),
        "failed": sum(point.failed for point in points),
    }


def _but_last(values: Sequence[float]) -> list[float | None]:
    # The minute that is not over would make every line end in a fall.
    return [*values[:-1], None]


def _named(moment: datetime, points: Sequence[Point]) -> str:
    local = timezone.localtime(moment)
    long = points[-1].timestamp - points[0].timestamp > timedelta(hours=2)
    return f"{local:%a %H:%M}" if long else f"{local:%H:%M}"


def _added(histograms: Iterable[Sequence[int]]) -> list[int]:
    return [sum(column) for column in zip(*histograms, strict=True)]


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


__all__ = ["OverviewPages", "drawn"]

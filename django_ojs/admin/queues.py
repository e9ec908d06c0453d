"""Queues: how full, how fast, since when; and a page of charts for each."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from django.http import Http404, HttpRequest, HttpResponse
from django.utils import timezone

from django_ojs.admin import charts
from django_ojs.admin.base import Pages
from django_ojs.admin.events import told
from django_ojs.admin.overview import drawn
from django_ojs.admin.query_timeout import Asking, asking
from django_ojs.admin.queue_actions import ACTIONS
from django_ojs.models import Queue
from django_ojs.operations import queues
from django_ojs.operations.figures import queue_overview
from django_ojs.operations.figures.history import history
from django_ojs.operations.figures.queue_overview import Row
from django_ojs.operations.queues.rows import RESERVED
from django_ojs.spec.errors import OJSError
from django_ojs.spec.states import State
from django_ojs.storage import events
from django_ojs.storage.figures import oldest_available, rollup_queries
from django_ojs.storage.figures import rollups as stored

PER_PAGE: Final = 50

#: What a list can be sorted by, beside the pressure.
_SORTS: dict[str, Callable[[Row], Any]] = {
    "name": lambda row: row.name,
    "depth": lambda row: (-row.depth, row.name),
    "in": lambda row: (-row.flow.came_per_minute, row.name),
    "out": lambda row: (-row.flow.went_per_minute, row.name),
}

_STATES = list(State)


class QueuePages(Pages):
    """The queues that have a row or jobs."""

    operations = ACTIONS

    def get_queryset(self, request: HttpRequest) -> Any:
        """Leave out the rows that stand for no queue."""
        return super().get_queryset(request).exclude(pk__in=RESERVED)

    def list_page(self, request: HttpRequest) -> HttpResponse:
        """Show them, those nearest to their bounds first."""
        stored.flush_if_due()
        words = request.GET.get("q", "").strip()
        sort = request.GET.get("sort", "")
        with asking() as ask:
            rows, total, listens = _rows(ask, words, sort)
            page = _page(request.GET.get("p", ""), len(rows))
            shown = rows[(page - 1) * PER_PAGE : page * PER_PAGE]
            waiting = (
                ask("oldest jobs", lambda: oldest_available.oldest([row.name for row in shown]))
                or {}
            )
            unknown = ask.unknown
        return self.render(
            request,
            "queues",
            "Queues",
            {
                "rows": [
                    (
                        row,
                        waiting.get(row.name),
                        charts.sparkline("Out in the last hour", row.flow.went[:-1]),
                    )
                    for row in shown
                ],
                "found": len(rows),
                "total": total,
                "listens": listens,
                "words": words,
                "sort": sort if sort in _SORTS else "",
                "sorts": ["", *_SORTS],
                "page_number": page,
                "before": page - 1,
                "after": page + 1 if page * PER_PAGE < len(rows) else 0,
                "unknown": unknown,
                "bulk": self.bulk(request),
                "looked_at": timezone.now(),
            },
        )

    def object_page(self, request: HttpRequest, key: str) -> HttpResponse:
        """Show one, with its last hour and day."""
        stored.flush_if_due()
        with asking() as ask:
            try:
                status = ask("queue", lambda: queues.get(key))
            except OJSError:
                raise Http404(
                    "There is no such queue: it has no job and no configuration."
                ) from None
            context: dict[str, Any] = {"row": None, "unknown": ask.unknown}
            if status is not None:
                context |= _look(ask, status)
        row = Queue(name=key, paused_at=status.paused_at if status else None)
        return self.render(
            request, "queue", key, {**context, "buttons": self.buttons(request, row)}
        )


def _rows(ask: Asking, words: str, sort: str) -> tuple[list[Row], int | None, int | None]:
    listing = ask("queues", queues.listing)
    statuses = listing.queues if listing else []
    total = len(statuses) if listing else None
    statuses = [status for status in statuses if words in status.name]
    listens = ask("workers", queue_overview.listeners)
    flows = ask("throughput", rollup_queries.flows) or {}
    rows = ask(
        "pressure",
        lambda: queue_overview.overview(
            statuses,
            flows=flows,
            oldest={},
            listens=listens.by_queue if listens else None,
        ),
    )
    if rows and sort in _SORTS:
        rows.sort(key=_SORTS[sort])
    return rows or [], total, listens.total if listens else None


def _look(ask: Asking, status: queues.QueueStatus) -> dict[str, Any]:
    name = status.name
    listens = ask("workers", queue_overview.listeners)
    flows = ask("throughput", rollup_queries.flows) or {}
    since = ask("oldest job", lambda: oldest_available.oldest([name])) or {}
    rows = ask(
        "pressure",
        lambda: queue_overview.overview(
            [status], flows=flows, oldest=since, listens=listens.by_queue if listens else None
        ),
    )
    hour = ask("last hour", lambda: history("1m", queue=name)) or []
    day = timezone.now() - timedelta(days=1)
    hours = ask("last day", lambda: history("1h", since=day, queue=name)) or []
    happened = events.kept().filter(subject=name).order_by("-id")
    kept = ask("events", lambda: list(happened[:10]))
    return {
        "row": rows[0] if rows else None,
        "status": status,
        "counts": [(state.value, status.counts.get(state, 0)) for state in _STATES],
        "hour": drawn(hour),
        "day": drawn(hours),
        "events": None if kept is None else [(event, told(event, False)) for event in kept],
        "unknown": ask.unknown,
        "looked_at": timezone.now(),
    }


def _page(text: str, rows: int) -> int:
    last = max(1, -(-rows // PER_PAGE))
    return (
        min(last, max(1, int(text))) if text.isascii() and text.isdigit() and len(text) < 9 else 1
    )


__all__ = ["QueuePages"]

"""Parts of the overview and of the page of a queue: types that ran, figures and charts."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext_lazy, gettext_noop, pgettext_lazy

from django_ojs.admin.base import OperatorModelAdmin
from django_ojs.admin.formatting import StrOrPromise
from django_ojs.admin.panels import Panel
from django_ojs.admin.query_timeout import TimedQueries
from django_ojs.extension import WantedEvents
from django_ojs.extensions.statistics import type_runs
from django_ojs.extensions.statistics.admin_charts import (
    change_markers,
    history_charts,
    release_markers,
)
from django_ojs.extensions.statistics.history import Period, history
from django_ojs.hooks import registry
from django_ojs.models import Overview
from django_ojs.operations.queues import QueueStatus
from django_ojs.spec.published import EventType

#: The most types of the overview.
_MAX_TYPES: Final = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class ChartPeriod:
    """The time until now that the charts show, and the width of their columns.

    `heading` is above them; `completed` names the jobs that the percentiles are about.
    """

    label: StrOrPromise
    heading: StrOrPromise
    completed: StrOrPromise
    length: timedelta
    width: Period


#: The periods by the value of the query parameter.
_PERIODS: Final = {
    "hour": ChartPeriod(
        label=pgettext_lazy("the last …", "hour"),
        heading=gettext_lazy("The last hour"),
        completed=gettext_lazy("Of the jobs that completed in the last hour"),
        length=timedelta(hours=1),
        width="1m",
    ),
    "6h": ChartPeriod(
        label=pgettext_lazy("the last …", "6 hours"),
        heading=gettext_lazy("The last 6 hours"),
        completed=gettext_lazy("Of the jobs that completed in the last 6 hours"),
        length=timedelta(hours=6),
        width="5m",
    ),
    "day": ChartPeriod(
        label=pgettext_lazy("the last …", "day"),
        heading=gettext_lazy("The last day"),
        completed=gettext_lazy("Of the jobs that completed in the last day"),
        length=timedelta(days=1),
        width="1h",
    ),
    "week": ChartPeriod(
        label=pgettext_lazy("the last …", "week"),
        heading=gettext_lazy("The last week"),
        completed=gettext_lazy("Of the jobs that completed in the last week"),
        length=timedelta(days=7),
        width="1h",
    ),
}

#: Changes of a queue that charts mark, and how many of its latest events are read for them.
_MARKED: Final = {
    EventType.QUEUE_PAUSED: pgettext_lazy("queue", "paused"),
    EventType.QUEUE_RESUMED: pgettext_lazy("queue", "resumed"),
    EventType.QUEUE_CONFIG_UPDATED: pgettext_lazy("queue", "configured"),
}
_MAX_READ: Final = 500


def _of_all(
    page: OperatorModelAdmin, request: HttpRequest, query: TimedQueries, overview: Overview
) -> Mapping[str, Any]:
    points = query(gettext_noop("history"), lambda: history("1m"))
    since = points[0].timestamp if points else timezone.now()
    happened = query(gettext_noop("changes"), lambda: change_markers(since, _MARKED)) or []
    return history_charts(points, happened=happened)


def _of_queue(
    page: OperatorModelAdmin, request: HttpRequest, query: TimedQueries, status: QueueStatus
) -> Mapping[str, Any]:
    name = status.name
    period = _PERIODS.get(request.GET.get("period", ""), _PERIODS["hour"])
    since = timezone.now() - period.length
    points = query(gettext_noop("history"), lambda: history(period.width, since=since, queue=name))
    wanted = WantedEvents(types=_MARKED.keys(), limit=_MAX_READ, subject=name, among=_MAX_READ)
    happened = query(gettext_noop("changes"), lambda: registry.brought("past_events", wanted)) or []
    deployed = query(gettext_noop("releases"), lambda: release_markers(since, name)) or []
    changes = [(event.time, str(_MARKED[event.type])) for event in happened]
    charts = history_charts(points, happened=[*changes, *deployed])
    return {"period": period, "periods": _PERIODS.items(), **charts}


def _types(
    page: OperatorModelAdmin, request: HttpRequest, query: TimedQueries, overview: Overview
) -> Mapping[str, Any]:
    return {"types": query(gettext_noop("types"), lambda: type_runs.lately(_MAX_TYPES))}


PANELS: Final = (
    Panel(
        kind=Overview,
        read=_of_all,
        template="django_ojs/admin/overview_charts.html",
        figures="django_ojs/admin/overview_figures.html",
        place=90,
    ),
    Panel(kind=Overview, read=_types, template="django_ojs/admin/overview_types.html"),
    Panel(
        kind=QueueStatus,
        read=_of_queue,
        template="django_ojs/admin/queue_charts.html",
        figures="django_ojs/admin/queue_figures.html",
    ),
)

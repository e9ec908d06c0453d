"""The parts of the overview: types by their failures and time, and the charts of the last hour."""

from collections.abc import Mapping
from typing import Any, Final

from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext_noop

from django_ojs.admin.base import OperatorModelAdmin
from django_ojs.admin.panels import Panel
from django_ojs.admin.query_timeout import TimedQueries
from django_ojs.extensions.statistics import rollup_queries, rollups
from django_ojs.extensions.statistics.admin_queue_figures import history_charts, release_markers
from django_ojs.extensions.statistics.history import history
from django_ojs.models import Overview

_MAX_TYPES: Final = 12


def _types(
    page: OperatorModelAdmin, request: HttpRequest, query: TimedQueries, obj: Any
) -> Mapping[str, Any]:
    found = query(gettext_noop("types"), lambda: rollup_queries.types(_MAX_TYPES))
    return {
        "types": None
        if found is None
        else [
            (each, rollups.percentile(each.ran, 0.5), rollups.percentile(each.ran, 0.95))
            for each in found
        ]
    }


def _charts(
    page: OperatorModelAdmin, request: HttpRequest, query: TimedQueries, obj: Any
) -> Mapping[str, Any]:
    points = query(gettext_noop("history"), lambda: history("1m"))
    since = points[0].timestamp if points else timezone.now()
    deployed = query(gettext_noop("releases"), lambda: release_markers(since)) or []
    return history_charts(points, happened=deployed)


PANELS: Final = (
    Panel(kind=Overview, read=_types, template="django_ojs/admin/overview_types.html"),
    Panel(kind=Overview, read=_charts, template="django_ojs/admin/overview_charts.html", place=90),
)

"""How the queues are served (ojs-fair-scheduling §10.2)."""

from typing import Any

from django.http import HttpRequest

from django_ojs.extensions.statistics import scheduling
from django_ojs.extensions.statistics.scheduling import PoolShare, QueueFigures
from django_ojs.http.views.base import OJSView
from django_ojs.spec import times
from django_ojs.spec.scopes import Scope


class AdminSchedulingStats(OJSView):
    """How the queues were served within the last minute, and what their pools plan."""

    needs = {"GET": Scope.OPERATOR}

    def get(self, request: HttpRequest) -> dict[str, Any]:
        found = scheduling.scheduling(within=self.access.queues)
        return {
            "queues": list(map(_queue, found.queues)),
            "pools": [
                {"name": name, "queues": list(map(_share, shares))}
                for name, shares in found.pools.items()
            ],
            "window": times.format_duration(scheduling.WINDOW),
        }


def _queue(figures: QueueFigures) -> dict[str, Any]:
    out: dict[str, Any] = {
        "name": figures.queue,
        "dispatch_count_1m": figures.runs,
        "dispatch_ratio_1m": figures.ratio,
        "active_jobs": figures.active_jobs,
    }
    if figures.wait_ms is not None:
        out["avg_wait_ms"] = round(figures.wait_ms, 1)
    return out


def _share(share: PoolShare) -> dict[str, Any]:
    out: dict[str, Any] = {
        "name": share.queue,
        "weight": share.weight,
        "dispatch_ratio_1m": share.ratio,
    }
    if share.planned is not None:
        out["planned_ratio"] = round(share.planned, 4)
    return out

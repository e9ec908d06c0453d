"""Pools of workers, and how the queues are served (ojs-fair-scheduling §10)."""

from typing import Any

from rest_framework.request import Request

from django_ojs.http.views.base import OJSView
from django_ojs.operations.figures import scheduling
from django_ojs.operations.figures.scheduling import PoolShare, PoolStatus, QueueFigures
from django_ojs.spec import times
from django_ojs.spec.scheduling import WEIGHTED
from django_ojs.spec.scopes import Scope


class AdminPools(OJSView):
    """The pools of the settings, with their workers and the jobs these have in flight."""

    needs = {"GET": Scope.OPERATOR}

    def get(self, request: Request) -> dict[str, Any]:
        return {"items": list(map(_pool, scheduling.pools(within=self.access.queues)))}


class AdminSchedulingStats(OJSView):
    """How the queues were served within the last minute, and what their pools plan."""

    needs = {"GET": Scope.OPERATOR}

    def get(self, request: Request) -> dict[str, Any]:
        found = scheduling.scheduling(within=self.access.queues)
        return {
            "queues": list(map(_queue, found.queues)),
            "pools": [
                {"name": name, "queues": list(map(_share, shares))}
                for name, shares in found.pools.items()
            ],
            "window": times.format_duration(scheduling.WINDOW),
        }


def _pool(status: PoolStatus) -> dict[str, Any]:
    pool, order = status.pool, status.pool.order
    out: dict[str, Any] = {
        "name": pool.name,
        "queues": status.queues,
        "concurrency": pool.concurrency,
        "strategy": order.strategy,
        "isolated": pool.exclusive,
        "active_workers": status.workers,
        "active_jobs": status.active_jobs,
    }
    if order.strategy == WEIGHTED:
        out["weights"] = {name: order.weight_of(name) for name in status.queues}
    if order.prevention is not None:
        out["starvation_prevention"] = {
            "enabled": True,
            "rotation_interval": times.format_duration(order.prevention.rotation_interval),
            "min_dispatch_ratio": order.prevention.min_dispatch_ratio,
        }
    return out


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

"""Totals and figures over time (ojs-admin-api §10); figures of a queue (http-binding §11.2)."""

from typing import Any

from django.http import HttpRequest

from django_ojs.conf import settings
from django_ojs.extensions.statistics import stats
from django_ojs.extensions.statistics.history import PERIODS, Point, history
from django_ojs.extensions.statistics.queue_statistics import statistics
from django_ojs.http import fields
from django_ojs.http.responses import timestamps
from django_ojs.http.views.base import OJSView
from django_ojs.http.views.queues import rendered_counts
from django_ojs.spec.envelope import check_queue
from django_ojs.spec.scopes import Scope


class AdminStats(OJSView):
    """The totals of all queues that the caller may use."""

    needs = {"GET": Scope.OPERATOR}

    def get(self, request: HttpRequest) -> dict[str, Any]:
        found = stats.totals(within=self.access.queues)
        return {
            "queues": found.queues,
            "workers": found.workers,
            "jobs": {state.value: number for state, number in found.jobs.items()},
            **stats.rendered(found.rates),
            "uptime_seconds": found.uptime_seconds,
        }


class AdminHistory(OJSView):
    """The figures of each period, of one queue or all."""

    needs = {"GET": Scope.OPERATOR}

    def get(self, request: HttpRequest) -> dict[str, Any]:
        query = request.GET
        period = fields.choice(query, "period", tuple(PERIODS), "5m")
        queue = query.get("queue") or None
        if queue is not None:
            check_queue(queue, settings().limits)
            self.access.check_queue(queue)
        points = history(
            period,
            since=fields.query_timestamp(query, "since"),
            until=fields.query_timestamp(query, "until"),
            queue=queue,
            within=self.access.queues,
        )
        return {"period": period, "data": [_point(point) for point in points]}


class QueueStatistics(OJSView):
    """The figures of a queue: jobs by state, and the last hour (§11.2)."""

    needs = {"GET": Scope.READ}

    def get(self, request: HttpRequest, name: str) -> dict[str, Any]:
        self.access.check_queue(name)
        found = statistics(name)
        counts = rendered_counts(found.status)
        return {
            "queue": {"name": name, "paused": found.status.paused, **counts},
            "status": found.status.state.value,
            "stats": {
                "queue": name,
                "depth": found.status.depth,
                "max_depth": found.status.config.backpressure.max_depth,
                **counts,
                "completed_last_hour": found.completed_last_hour,
                "failed_last_hour": found.failed_last_hour,
                "avg_duration_ms": round(found.avg_duration_ms or 0),
                "avg_wait_ms": round(found.avg_wait_ms or 0),
                "throughput_per_second": round(found.throughput_per_second, 4),
                **timestamps(oldest_available_at=found.oldest_available_at),
            },
            **timestamps(computed_at=found.computed_at),
        }


def _point(point: Point) -> dict[str, Any]:
    out: dict[str, Any] = {
        **timestamps(timestamp=point.timestamp),
        "processed": point.processed,
        "failed": point.failed,
        "enqueued": point.enqueued,
        "completed": point.completed,
        "discarded": point.discarded,
    }
    for name, histogram in (("latency", point.waited), ("duration", point.ran)):
        for share, value in stats.percentiles(histogram).items():
            if value is not None:
                out[f"{name}_{share}_ms"] = value
    return out

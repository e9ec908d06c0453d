"""Queues of the data plane (http-binding §11, ojs-queue-config §9)."""

from typing import Any

from django.http import HttpResponse
from django.utils import timezone
from rest_framework.request import Request

from django_ojs.http import fields, pagination
from django_ojs.http.access import Scope
from django_ojs.http.views.base import OJSView
from django_ojs.operations import queues
from django_ojs.operations.queues import DEFAULT_POLICY, QueueStatus, Statistics
from django_ojs.spec.queue_config import QueueConfig
from django_ojs.spec.states import State
from django_ojs.spec.times import format_timestamp


class Queues(OJSView):
    """All queues; creating one (§9.2)."""

    needs = {"GET": Scope.READ, "POST": Scope.ADMIN}

    def get(self, request: Request) -> dict[str, Any]:
        """List the queues that the caller may use, by name."""
        wanted = pagination.window(request.query_params, str)
        found = queues.listing(
            after=wanted.cursor[0] if wanted.cursor else None,
            offset=wanted.offset,
            limit=wanted.limit,
            within=self.access.queues,
        )
        end = [found.queues[-1].name] if found.queues else None
        return {
            "queues": [{**summary(queue), "depth": queue.depth} for queue in found.queues],
            "pagination": wanted.describe(total=found.total, has_more=found.has_more, end=end),
        }

    def post(self, request: Request) -> HttpResponse:
        """Create a queue before its first job."""
        data = self.body()
        name = fields.required(data, "name")
        if isinstance(name, str):
            self.access.check_queue(name)
        made = queues.create(name, data.get("config"))
        answer = {**summary(made), "config": dict(made.config.values)}
        return self.answer(answer, 201, {"Location": f"{request.path}/{made.name}"})


class QueueDetail(OJSView):
    """One queue (§9.3), and its end (§9.4)."""

    needs = {"GET": Scope.READ, "DELETE": Scope.ADMIN}

    def get(self, request: Request, name: str) -> dict[str, Any]:
        """Return a queue with its configuration and the figures of the day."""
        self.access.check_queue(name)
        found = queues.statistics(name)
        return {
            **summary(found.status),
            "config": dict(found.status.config.values),
            "stats": {
                "depth": found.status.depth,
                **_numbers(found),
                "completed_today": found.completed_today,
                "failed_today": found.failed_today,
            },
        }

    def delete(self, request: Request, name: str) -> HttpResponse:
        """Delete the queue; the strategy may stand in the query too, for clients without bodies."""
        data = {**request.query_params.dict(), **self.body(required=False)}
        strategy = fields.string(data, "strategy") or "reject"
        target = fields.string(data, "target_queue") or None
        for queue in (name, target):
            if queue is not None:
                self.access.check_queue(queue)
        done = queues.delete(name, strategy=strategy, target=target)  # type: ignore[arg-type]  # it judges the name
        answer: dict[str, Any] = {
            "queue": done.queue,
            "strategy": done.strategy,
            "jobs_affected": done.jobs_affected,
            "jobs_waiting": done.waiting,
            "state": str(done.state),
        }
        if done.target is not None:
            answer["target_queue"] = done.target
        return self.answer(answer, 202)


class QueueConfiguration(OJSView):
    """What was set for a queue, or with the name `_default` for all that say nothing (§7.1)."""

    needs = {"GET": Scope.READ, "PUT": Scope.ADMIN}

    def get(self, request: Request, name: str) -> dict[str, Any]:
        """Return what holds for the queue."""
        if name == DEFAULT_POLICY:
            return configuration(name, queues.default_policy())
        self.access.check_queue(name)
        return configuration(name, queues.get(name).config)

    def put(self, request: Request, name: str) -> dict[str, Any]:
        """Change the configuration by top-level key; null takes a value away."""
        if name == DEFAULT_POLICY:
            self.access.check_all_queues()
            return configuration(name, queues.configure_default(self.body()))
        self.access.check_queue(name)
        return configuration(name, queues.configure(name, self.body()).config)


class QueueStatistics(OJSView):
    """The figures of a queue (§11.2)."""

    needs = {"GET": Scope.READ}

    def get(self, request: Request, name: str) -> dict[str, Any]:
        """Return the numbers of jobs, and what happened in the last hour."""
        self.access.check_queue(name)
        found = queues.statistics(name)
        numbers = _numbers(found)
        stats: dict[str, Any] = {
            "queue": name,
            "depth": found.status.depth,
            "max_depth": found.status.config.backpressure.max_depth,
            **numbers,
            "completed_last_hour": found.completed_last_hour,
            "failed_last_hour": found.failed_last_hour,
            "avg_duration_ms": round(found.avg_duration_ms or 0),
            "avg_wait_ms": round(found.avg_wait_ms or 0),
            "throughput_per_second": round(found.throughput_per_second, 4),
        }
        if found.oldest_available_at is not None:
            stats["oldest_available_at"] = format_timestamp(found.oldest_available_at)
        return {
            "queue": {"name": name, "paused": found.status.paused, **numbers},
            "status": found.status.state.value,
            "stats": stats,
            "computed_at": format_timestamp(found.computed_at),
        }


class QueuePause(OJSView):
    """Pause (§11.3)."""

    needs = {"POST": Scope.OPERATOR}

    def post(self, request: Request, name: str) -> dict[str, Any]:
        """Hand out no more jobs of the queue."""
        self.access.check_queue(name)
        queue = queues.pause(name, by=self.access.name)
        answer: dict[str, Any] = {"queue": {"name": name, "paused": True}, "status": "paused"}
        if queue.paused_at is not None:
            answer["paused_at"] = format_timestamp(queue.paused_at)
        return answer


class QueueResume(OJSView):
    """Resume (§11.4)."""

    needs = {"POST": Scope.OPERATOR}

    def post(self, request: Request, name: str) -> dict[str, Any]:
        """Hand out the jobs of the queue again."""
        self.access.check_queue(name)
        queues.resume(name, by=self.access.name)
        return {
            "queue": {"name": name, "paused": False},
            "status": "active",
            "resumed_at": format_timestamp(timezone.now()),
        }


def summary(queue: QueueStatus) -> dict[str, Any]:
    """Return what every answer about a queue says of it."""
    out: dict[str, Any] = {
        "name": queue.name,
        "status": queue.state.value,
        "state": queue.state.value,
        "paused": queue.paused,
        "created_at": format_timestamp(queue.created_at),
    }
    if queue.paused_at is not None:
        out["paused_at"] = format_timestamp(queue.paused_at)
    return out


def configuration(name: str, config: QueueConfig) -> dict[str, Any]:
    """Return a configuration as it is put, and the same as it is created with."""
    return {**config.values, "name": name, "config": dict(config.values)}


def _numbers(found: Statistics) -> dict[str, int]:
    return {State(state).value: number for state, number in found.counts.items()}

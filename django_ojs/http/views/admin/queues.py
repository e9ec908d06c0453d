"""Queues: list, look at, pause, resume, configure, purge (ojs-admin-api §6)."""

from typing import Any

from django.utils import timezone
from rest_framework.request import Request

from django_ojs.conf import settings
from django_ojs.http import fields
from django_ojs.http.access import Scope
from django_ojs.http.views.admin.base import AdminView, states_of
from django_ojs.operations import queues
from django_ojs.operations.figures import stats
from django_ojs.operations.figures.stats import Rates
from django_ojs.operations.jobs import bulk
from django_ojs.operations.queues import QueueStatus
from django_ojs.spec.envelope import check_queue
from django_ojs.spec.states import State
from django_ojs.spec.times import format_timestamp


class _Queue(AdminView):
    def queue(self, name: str) -> str:
        """Return a name of the path that the caller may use. Raises InvalidQueue as well."""
        check_queue(name, settings().limits, field="name")
        self.access.check_queue(name)
        return name


class AdminQueues(AdminView):
    """All queues that are known."""

    needs = {"GET": Scope.OPERATOR}

    def get(self, request: Request) -> dict[str, Any]:
        """List queues with their counts and rates, in the order of their names."""
        page = self.page()
        known = queues.listing(offset=page.offset, limit=page.per_page, within=self.within)
        rates = stats.rates([status.name for status in known.queues])
        items = [{**_status(status), **rated(rates[status.name])} for status in known.queues]
        return self.listed(items, known.total)


class AdminQueue(_Queue):
    """One queue."""

    needs = {"GET": Scope.OPERATOR}

    def get(self, request: Request, name: str) -> dict[str, Any]:
        """Return the queue with its configuration."""
        return _detail(queues.get(self.queue(name)))


class AdminQueuePause(_Queue):
    """Pause a queue."""

    needs = {"POST": Scope.OPERATOR}

    def post(self, request: Request, name: str) -> dict[str, Any]:
        """Hand out no more of its jobs. A queue nobody has used yet can be paused too."""
        queue = queues.pause(self.queue(name), by=self.access.name)
        since = queue.paused_at or timezone.now()
        return {
            "name": queue.name,
            "state": "paused",
            "paused": True,
            "paused_at": format_timestamp(since),
        }


class AdminQueueResume(_Queue):
    """Resume a queue."""

    needs = {"POST": Scope.OPERATOR}

    def post(self, request: Request, name: str) -> dict[str, Any]:
        """Hand out its jobs again."""
        queue = queues.resume(self.queue(name), by=self.access.name)
        return {
            "name": queue.name,
            "state": "active",
            "paused": False,
            "resumed_at": format_timestamp(timezone.now()),
        }


class AdminQueueConfig(_Queue):
    """A queue's configuration."""

    needs = {"PUT": Scope.ADMIN}

    def put(self, request: Request, name: str) -> dict[str, Any]:
        """Change it by top-level key, at once; a queue that is not known is created."""
        return _detail(queues.configure(self.queue(name), self.body()))


class AdminQueueJobs(_Queue):
    """A queue's jobs, to be purged."""

    needs = {"DELETE": Scope.ADMIN}

    def delete(self, request: Request, name: str) -> dict[str, Any]:
        """Delete the jobs in some states; running ones never."""
        data = self.body()
        fields.confirm(data)
        fields.required(data, "states")
        states = states_of(fields.strings(data, "states") or [], "states")
        older_than = fields.timestamp(data, "older_than")
        done = bulk.purge(queues.get(self.queue(name)).name, states, older_than=older_than)
        return {
            "purged_count": done.succeeded,
            "states": [state.value for state in states],
            "has_more": done.has_more,
        }


def rated(rates: Rates) -> dict[str, Any]:
    """Return what happens in a minute, and how long jobs waited; what is not known is left out."""
    return {
        "throughput": {
            "processed_per_minute": rates.processed_per_minute,
            "failed_per_minute": rates.failed_per_minute,
        },
        "latency_ms": {
            name: value for name, value in rates.latency_ms.items() if value is not None
        },
    }


def _status(status: QueueStatus) -> dict[str, Any]:
    out: dict[str, Any] = {
        "name": status.name,
        "state": status.state.value,
        "counts": {state.value: status.counts.get(state, 0) for state in State},
        "depth": status.depth,
        "paused": status.paused,
    }
    if status.paused_at is not None:
        out["paused_at"] = format_timestamp(status.paused_at)
    out["created_at"] = format_timestamp(status.created_at)
    return out


def _detail(status: QueueStatus) -> dict[str, Any]:
    out = {
        **_status(status),
        **rated(stats.rates([status.name])[status.name]),
        "configuration": dict(status.config.values),
    }
    oldest = queues.oldest_available(status.name)
    if oldest is not None:
        out["oldest_available_at"] = format_timestamp(oldest)
    return out

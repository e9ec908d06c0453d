"""Queues on the control plane: list, details, pause, configuration, purge (ojs-admin-api §6)."""

from typing import Any

from django.http import HttpRequest

from django_ojs import hooks
from django_ojs.conf import settings
from django_ojs.http import fields
from django_ojs.http.responses import timestamps
from django_ojs.http.views.admin.base import AdminView, states_of
from django_ojs.http.views.queues import changed, render_configuration, rendered_counts
from django_ojs.operations import queues
from django_ojs.operations.jobs import bulk
from django_ojs.operations.queues import QueueStatus
from django_ojs.spec.envelope import check_queue
from django_ojs.spec.queue_config import DEFAULT_POLICY
from django_ojs.spec.scopes import Scope
from django_ojs.storage.figures import oldest_available


class AdminQueueView(AdminView):
    def queue(self, name: str) -> str:
        """Return the queue of a path. Raises InvalidQueue, PermissionDenied."""
        check_queue(name, settings().limits, field="name")
        self.access.check_queue(name)
        return name

    def new_queue(self, name: str) -> str:
        """Return the queue of a path, which the action may create. Raises as `queue` does."""
        self.make_known(queues=[self.queue(name)])
        return name


class AdminQueues(AdminView):
    """All known queues with their counts and rates, by name."""

    needs = {"GET": Scope.OPERATOR}

    def get(self, request: HttpRequest) -> dict[str, Any]:
        page = queues.listing(self.wanted(), within=self.access.queues)
        shown = hooks.shown_of_queues([queue.name for queue in page.rows], to_operators=True)
        items = [{**_summary(queue), **shown[queue.name]} for queue in page.rows]
        return self.listed(items, page.count())


class AdminQueue(AdminQueueView):
    needs = {"GET": Scope.OPERATOR}

    def get(self, request: HttpRequest, name: str) -> dict[str, Any]:
        return detail(queues.get(self.queue(name)))


class AdminQueueChange(AdminQueueView):
    """Pause, drain or resume a queue; an unknown queue is created."""

    needs = {"POST": Scope.OPERATOR}
    #: "pause", "drain" or "resume".
    change = ""

    def post(self, request: HttpRequest, name: str) -> dict[str, Any]:
        queue, state, since = changed(self.change, self.new_queue(name))
        return {"name": queue.name, "state": state, "paused": queue.paused, **since}


class AdminQueueConfig(AdminQueueView):
    """Change the configuration of a queue by top-level key; an unknown queue is created.

    As on the data plane, `_default` names the default policy.
    """

    needs = {"PUT": Scope.ADMIN}

    def put(self, request: HttpRequest, name: str) -> dict[str, Any]:
        if name == DEFAULT_POLICY:
            self.access.check_all_queues()
            return render_configuration(name, queues.configure_default(self.body()))
        changes = self.body()
        self.access.check_dead_letter_queue(changes)
        return detail(queues.configure(self.new_queue(name), changes))


class AdminQueueJobs(AdminQueueView):
    """Purge a queue: delete its jobs in some states, except active ones."""

    needs = {"DELETE": Scope.ADMIN}

    def delete(self, request: HttpRequest, name: str) -> dict[str, Any]:
        data = self.confirmed_body()
        fields.required(data, "states")
        states = states_of(fields.strings(data, "states") or [], "states")
        older_than = fields.timestamp(data, "older_than")
        done = bulk.purge(queues.get(self.queue(name)).name, states, older_than=older_than)
        return {
            "purged_count": done.succeeded,
            "states": [state.value for state in states],
            "has_more": done.has_more,
        }


def _summary(queue: QueueStatus) -> dict[str, Any]:
    return {
        "name": queue.name,
        "state": queue.state.value,
        "counts": rendered_counts(queue),
        "depth": queue.depth,
        "paused": queue.paused,
        **timestamps(
            paused_at=queue.paused_at,
            draining_at=queue.draining_at,
            created_at=queue.created_at,
        ),
    }


def detail(queue: QueueStatus) -> dict[str, Any]:
    """Return the JSON object of one queue, with its configuration."""
    return {
        **_summary(queue),
        **hooks.shown_of_queues([queue.name], to_operators=True)[queue.name],
        "configuration": dict(queue.config.values),
        **timestamps(oldest_available_at=oldest_available.oldest([queue.name]).get(queue.name)),
    }

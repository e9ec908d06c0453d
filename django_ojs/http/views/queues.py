"""Queues of the data plane (http-binding §11, ojs-queue-config §9)."""

from functools import partial
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from django_ojs import hooks
from django_ojs.conf import settings
from django_ojs.http import fields, pagination
from django_ojs.http.responses import json_response, timestamps
from django_ojs.http.views.base import OJSView
from django_ojs.models import Queue
from django_ojs.operations import queues
from django_ojs.operations.queues import QueueState, QueueStatus
from django_ojs.spec.envelope import check_queue
from django_ojs.spec.queue_config import DEFAULT_POLICY, QueueConfig
from django_ojs.spec.scopes import Scope
from django_ojs.spec.states import State


class QueueList(OJSView):
    """The queues that the caller may use, by name; creation of a queue (§9.2)."""

    needs = {"GET": Scope.READ, "POST": Scope.ADMIN}

    def get(self, request: HttpRequest) -> dict[str, Any]:
        def render(queue: QueueStatus) -> dict[str, Any]:
            return {**_summary(queue), "depth": queue.depth}

        read = partial(queues.listing, within=self.access.queues)
        return pagination.listed(request.GET, "queues", read, render)

    def post(self, request: HttpRequest) -> HttpResponse:
        """Create a queue before its first job."""
        data = self.body()
        name = fields.required(data, "name")
        if isinstance(name, str):
            self.access.check_queue(name)
            check_queue(name, settings().limits, field="name")
            self.access.check_dead_letter_queue(data.get("config"))
            self.make_known(queues=[name])
        created = queues.create(name, data.get("config"))
        return json_response(
            {**_summary(created), "config": dict(created.config.values)},
            201,
            {"Location": f"{request.path}/{created.name}"},
        )


class QueueDetail(OJSView):
    """One queue (§9.3), and its deletion (§9.4)."""

    needs = {"GET": Scope.READ, "DELETE": Scope.ADMIN}

    def get(self, request: HttpRequest, name: str) -> dict[str, Any]:
        """Return a queue with its configuration and the figures of the day."""
        self.access.check_queue(name)
        queue = queues.get(name)
        return {
            **_summary(queue),
            **timestamps(updated_at=queue.updated_at),
            "config": dict(queue.config.values),
            "stats": {
                "depth": queue.depth,
                **rendered_counts(queue),
                **hooks.shown_of_queues([name], to_operators=False)[name],
            },
        }

    def delete(self, request: HttpRequest, name: str) -> HttpResponse:
        """Delete the queue. The query may have the strategy too: some clients send no body."""
        data = {**request.GET.dict(), **self.body(required=False)}
        strategy = fields.string(data, "strategy") or "reject"
        target = fields.string(data, "target_queue") or None
        for queue in (name, target):
            if queue is not None:
                self.access.check_queue(queue)
        if target is not None and strategy == "move":
            check_queue(target, settings().limits, field="target_queue")
            self.make_known(queues=[target])
        done = queues.delete(name, strategy=strategy, target=target)  # type: ignore[arg-type]  # it validates the strategy
        out: dict[str, Any] = {
            "queue": done.queue,
            "strategy": done.strategy,
            "jobs_affected": done.jobs_affected,
            "jobs_waiting": done.waiting,
            "state": str(done.state),
        }
        if done.target is not None:
            out["target_queue"] = done.target
        return json_response(out, 202)


class QueueView(OJSView):
    def check_new(self, name: str) -> None:
        """Check the queue of an action that creates it. Raises PermissionDenied, InvalidQueue."""
        self.access.check_queue(name)
        check_queue(name, settings().limits)
        self.make_known(queues=[name])


class QueueConfiguration(QueueView):
    """The configuration of a queue, or the default policy under the name `_default` (§7.1)."""

    needs = {"GET": Scope.READ, "PUT": Scope.ADMIN}

    def get(self, request: HttpRequest, name: str) -> dict[str, Any]:
        if name == DEFAULT_POLICY:
            return render_configuration(name, queues.default_policy())
        self.access.check_queue(name)
        return render_configuration(name, queues.get(name).config)

    def put(self, request: HttpRequest, name: str) -> dict[str, Any]:
        """Change the configuration by top-level key; null removes a value."""
        if name == DEFAULT_POLICY:
            self.access.check_all_queues()
            return render_configuration(name, queues.configure_default(self.body()))
        self.access.check_queue(name)
        changes = self.body()
        self.access.check_dead_letter_queue(changes)
        self.check_new(name)
        return render_configuration(name, queues.configure(name, changes).config)


class QueueChange(QueueView):
    """Pause, drain or resume a queue (§11.3, §11.4; the documents name no route to drain it)."""

    needs = {"POST": Scope.OPERATOR}
    #: "pause", "drain" or "resume".
    change = ""

    def post(self, request: HttpRequest, name: str) -> dict[str, Any]:
        self.check_new(name)
        queue, status, since = changed(self.change, name)
        return {"queue": {"name": name, "paused": queue.paused}, "status": status, **since}


def changed(change: str, name: str) -> tuple[Queue, str, dict[str, Any]]:
    """Pause, drain or resume a queue. Return it, its state, and the time of its change."""
    if change == "resume":
        return queues.resume(name), QueueState.ACTIVE.value, timestamps(resumed_at=timezone.now())
    if change == "pause":
        queue = queues.pause(name)
        return queue, QueueState.PAUSED.value, timestamps(paused_at=queue.paused_at)
    queue = queues.drain(name)
    status = QueueState.PAUSED if queue.paused else QueueState.DRAINING
    return queue, status.value, timestamps(draining_at=queue.draining_at)


def _summary(queue: QueueStatus) -> dict[str, Any]:
    return {
        "name": queue.name,
        "status": queue.state.value,
        "state": queue.state.value,
        "paused": queue.paused,
        **timestamps(
            created_at=queue.created_at,
            paused_at=queue.paused_at,
            draining_at=queue.draining_at,
        ),
    }


def render_configuration(name: str, config: QueueConfig) -> dict[str, Any]:
    # The values are at the top level, as in PUT, and under `config`, as in POST.
    return {**config.values, "name": name, "config": dict(config.values)}


def rendered_counts(queue: QueueStatus) -> dict[str, int]:
    """Return the number of jobs in every state, including states without jobs."""
    return {state.value: queue.counts.get(state, 0) for state in State}

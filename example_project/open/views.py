"""Endpoints of the open server only: directives on demand, and a reset."""

from collections.abc import Collection
from typing import Any

from django.db.models import Q
from django.http import HttpRequest

from django_ojs.http.views import workers
from django_ojs.http.views.base import OJSView
from django_ojs.models import Job
from django_ojs.models.worker import Directive
from django_ojs.spec.scopes import Scope
from django_ojs.spec.states import State
from example_project.open.reset import reset


class Heartbeat(workers.Beat):
    """BEAT, with a directive that a job can request, to test how a worker obeys it.

    A job whose meta has `"test_directive": "quiet"` or `"terminate"` (`options.metadata` of a PUSH)
    sets the directive in the responses to the beats of the worker that runs it. A job that was
    fetched without a worker id belongs to each worker that names it in a beat.
    """

    def body(self, *, required: bool = True) -> dict[str, Any]:
        """Keep the body: a request can be read once."""
        self.sent = super().body(required=required)
        return self.sent

    def post(self, request: HttpRequest) -> dict[str, Any]:
        """Record the beat; a requested directive replaces `running`."""
        response = super().post(request)
        named = self.sent.get("active_jobs")
        if not isinstance(named, list):
            named = self.sent.get("active_job_ids")
        requested = _directives(self.sent["worker_id"], named)
        for directive in (Directive.TERMINATE, Directive.QUIET):
            if directive.value in requested and response["state"] == Directive.RUNNING:
                response["state"] = directive.value
        return response


class Reset(OJSView):
    """Empty the server between two tests."""

    needs = {"POST": Scope.ADMIN}

    def post(self, request: HttpRequest) -> dict[str, Any]:
        """Delete every job, queue, worker and all other data."""
        reset()
        return {"reset": True}


def _directives(worker_id: str, named: Collection[str] | None) -> set[str]:
    own = Q(worker_id=worker_id) | Q(worker_id=None, pk__in=named or ())
    held = Job.objects.filter(own, state=State.ACTIVE, meta__has_key="test_directive")
    return {str(meta["test_directive"]) for meta in held.values_list("meta", flat=True)}

"""What only the open server answers: directives on demand, and a reset."""

from collections.abc import Collection
from typing import Any

from django.db.models import Q
from rest_framework.request import Request

from django_ojs.http.views import workers
from django_ojs.http.views.base import OJSView
from django_ojs.models import Job
from django_ojs.models.worker import Directive
from django_ojs.spec.scopes import Scope
from django_ojs.spec.states import State
from example_project.open.reset import reset


class Heartbeat(workers.Heartbeat):
    """BEAT, with a directive that a job can ask for: its client tests how a worker obeys.

    A job whose meta has `"test_directive": "quiet"` or `"terminate"` (`options.metadata` of a PUSH)
    makes the beats of the worker that runs it answer so. A job that was fetched without a worker's
    name is anybody's who names it.
    """

    def body(self, *, required: bool = True) -> dict[str, Any]:
        """Keep what was sent: a request can be read once."""
        self.sent = super().body(required=required)
        return self.sent

    def post(self, request: Request) -> dict[str, Any]:
        """Beat as ever; a directive that was asked for goes before `running`."""
        answer = super().post(request)
        named = self.sent.get("active_jobs")
        if not isinstance(named, list):
            named = self.sent.get("active_job_ids")
        asked = _directives(self.sent["worker_id"], named)
        for directive in (Directive.TERMINATE, Directive.QUIET):
            if directive.value in asked and answer["state"] == Directive.RUNNING:
                answer["state"] = directive.value
        return answer


class Reset(OJSView):
    """Empty the server between two tests."""

    needs = {"POST": Scope.ADMIN}

    def post(self, request: Request) -> dict[str, Any]:
        """Delete every job, queue, worker and whatever else there is."""
        reset()
        return {"reset": True}


def _directives(worker_id: str, named: Collection[str] | None) -> set[str]:
    own = Q(worker_id=worker_id) | Q(worker_id=None, pk__in=named or ())
    held = Job.objects.filter(own, state=State.ACTIVE, meta__has_key="test_directive")
    return {str(meta["test_directive"]) for meta in held.values_list("meta", flat=True)}

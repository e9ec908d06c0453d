"""The routes that gunicorn serves: the API, and views beside which its cost is seen."""

from __future__ import annotations

import json
from typing import Any

from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.urls import include, path

from django_ojs.http.responses import json_response
from django_ojs.http.views.base import OJSView
from django_ojs.spec import ids
from django_ojs.spec.scopes import Scope
from tests.benchmarks.contenders import bare


class Nothing(OJSView):
    """The upper limit: reads, authenticates and responds, as each view of the package does."""

    needs = {"GET": Scope.READ, "POST": Scope.PRODUCER}

    def get(self, request: HttpRequest, key: str) -> dict[str, Any]:
        """Respond with about what INFO responds with."""
        return {"job": _job([1])}

    def post(self, request: HttpRequest, key: str) -> HttpResponse:
        """Respond with about what PUSH responds with."""
        data = self.body()
        self.access.check_queue("default")
        return json_response({"job": _job(data["args"])}, 201, {"Location": f"{request.path}/x"})


def bare_view(request: HttpRequest, key: str) -> HttpResponse:
    """Respond as a plain Django view: without authentication, and without validation."""
    args = json.loads(request.body)["args"] if request.body else [1]
    return HttpResponse(json.dumps({"job": _job(args)}), content_type="application/json")


def bare_insert(request: HttpRequest, key: str) -> HttpResponse:
    """Store a row as a plain Django view would: one INSERT into a copy of the jobs' table."""
    args = json.loads(request.body)["args"]
    with connection.cursor() as cursor:
        cursor.execute(bare.INSERT, [ids.uuid7(), json.dumps(args)])
    return HttpResponse(json.dumps({"job": _job(args)}), content_type="application/json")


def _job(args: Any) -> dict[str, Any]:
    moment = "2030-01-01T00:00:00.000Z"
    return {
        "specversion": "1.0.0-rc.1",
        "id": "019461a8-1a2b-7c3d-8e4f-5a6b7c8d9e0f",
        "type": "bench.noop",
        "queue": "default",
        "args": args,
        "meta": {},
        "state": "available",
        "attempt": 0,
        "max_attempts": 3,
        "priority": 0,
        "created_at": moment,
        "enqueued_at": moment,
    }


urlpatterns = [
    path("nothing/<str:key>", Nothing.as_view()),
    path("bare/<str:key>", bare_view),
    path("bare_insert/<str:key>", bare_insert),
    path("", include("django_ojs.http.urls")),
]

"""Dead letters on the control plane (ojs-admin-api §11, ojs-dead-letter §6)."""

from typing import Any

from django.http import HttpRequest, HttpResponse

from django_ojs.http import fields
from django_ojs.http.responses import json_response
from django_ojs.http.views.admin.base import AdminView
from django_ojs.http.views.admin.job_rendering import changed, detail
from django_ojs.http.views.dead_letter import DeadLetterFigures, DeadLetterView
from django_ojs.operations.jobs import bulk
from django_ojs.spec.errors import InvalidRequest
from django_ojs.spec.scopes import Scope
from django_ojs.spec.states import State


class AdminDeadLetters(AdminView):
    """The dead letters that match a filter; its `since` and `until` are times of the discard."""

    needs = {"GET": Scope.OPERATOR, "DELETE": Scope.ADMIN}

    def get(self, request: HttpRequest) -> dict[str, Any]:
        return self.search(self.query_filter(dead_letters=True), "discarded_at")

    def delete(self, request: HttpRequest) -> dict[str, Any]:
        """Delete all dead letters, those discarded before `older_than`, or those of the filter."""
        data = self.confirmed_body()
        given = dict(fields.object_(data, "filter") or {})
        if data.get("older_than") is not None:
            # `older_than` is another name of filter.until.
            if given.get("until") is not None:
                raise InvalidRequest.of(
                    "older_than", "must be left out where filter.until is given"
                )
            fields.timestamp(data, "older_than")
            given["until"] = data["older_than"]
        which = self.body_filter(given, dead_letters=True)
        done = bulk.delete_all(which, within=self.access.queues, limit=bulk.PURGE_LIMIT)
        return {"purged_count": done.succeeded, "has_more": done.has_more}


class AdminDeadLetter(DeadLetterView):
    """One dead letter, with the history of its errors."""

    needs = {"GET": Scope.OPERATOR, "DELETE": Scope.ADMIN}

    def get(self, request: HttpRequest, key: str) -> dict[str, Any]:
        return detail(self.find(key))

    def delete(self, request: HttpRequest, key: str) -> HttpResponse:
        self.delete_one(key)
        return json_response(None, 204)


class AdminDeadLetterRetry(DeadLetterView):
    """RETRY of one dead letter: it gets all its attempts again."""

    needs = {"POST": Scope.OPERATOR}

    def post(self, request: HttpRequest, key: str) -> dict[str, Any]:
        return changed(self.retry(key), State.DISCARDED)


class AdminDeadLetterStats(DeadLetterFigures):
    """The figures of the data plane, for operators."""

    needs = {"GET": Scope.OPERATOR}

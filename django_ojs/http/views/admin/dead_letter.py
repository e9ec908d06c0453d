"""Dead letters, on the control plane (ojs-admin-api §11, ojs-dead-letter §6)."""

from typing import Any
from uuid import UUID

from django.http import HttpResponse
from rest_framework.request import Request

from django_ojs.http import fields
from django_ojs.http.access import Scope
from django_ojs.http.views.admin.answers import changed, detail
from django_ojs.http.views.admin.base import AdminView
from django_ojs.http.views.admin.jobs import found
from django_ojs.http.views.dead_letter import figures
from django_ojs.http.views.jobs import job_id
from django_ojs.operations.jobs import bulk, dead_letters
from django_ojs.spec.states import State


class _DeadLetter(AdminView):
    def find(self, key: str) -> UUID:
        """Return the id of a dead letter that the caller may use. Raises NotFound for others."""
        job = dead_letters.get(job_id(key))
        self.access.check_queue(job.queue)
        return job.pk


class AdminDeadLetters(AdminView):
    """The dead letters that meet a filter."""

    needs = {"GET": Scope.OPERATOR, "DELETE": Scope.ADMIN}

    def get(self, request: Request) -> dict[str, Any]:
        """List dead letters, the latest to die first; `since` and `until` are about that time."""
        return found(self, self.query_filter(dead_letters=True), "discarded_at")

    def delete(self, request: Request) -> dict[str, Any]:
        """Delete all, or those that died before `older_than` or meet the filter."""
        data = self.body()
        fields.confirm(data)
        meant = dict(fields.object_(data, "filter") or {})
        if data.get("older_than") is not None:
            # In one place with the filter's own bound, of which it is another name.
            if meant.get("until") is not None:
                raise fields.refuse("older_than", "must be left out where filter.until is given")
            fields.timestamp(data, "older_than")
            meant["until"] = data["older_than"]
        which = self.body_filter(meant, dead_letters=True)
        done = bulk.delete_all(which, within=self.within, limit=bulk.PURGE_LIMIT)
        return {"purged_count": done.succeeded, "has_more": done.has_more}


class AdminDeadLetter(_DeadLetter):
    """One dead letter."""

    needs = {"GET": Scope.OPERATOR, "DELETE": Scope.ADMIN}

    def get(self, request: Request, key: str) -> dict[str, Any]:
        """Return it with the history of its errors."""
        return detail(dead_letters.get(self.find(key)))

    def delete(self, request: Request, key: str) -> HttpResponse:
        """Delete it for good."""
        dead_letters.delete(self.find(key))
        return self.answer(None, 204)


class AdminDeadLetterRetry(_DeadLetter):
    """RETRY of one dead letter."""

    needs = {"POST": Scope.OPERATOR}

    def post(self, request: Request, key: str) -> dict[str, Any]:
        """Make it available again, with all its attempts, changed if the body says so (§6.3)."""
        found = self.find(key)
        override = fields.object_(self.body(required=False), "override") or {}
        if isinstance(override.get("queue"), str):
            self.access.check_queue(override["queue"])
        return changed(dead_letters.retry(found, override=override), State.DISCARDED)


class AdminDeadLetterStats(AdminView):
    """How many there are, by queue and by error."""

    needs = {"GET": Scope.OPERATOR}

    def get(self, request: Request) -> dict[str, Any]:
        """Return the figures of the queues that the caller may use."""
        return figures(self.within)

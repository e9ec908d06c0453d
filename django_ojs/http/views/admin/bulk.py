"""Bulk retry, cancel and delete (ojs-admin-api §8)."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

from django.http import HttpRequest

from django_ojs.http import fields
from django_ojs.http.views.admin.base import AdminView
from django_ojs.operations.jobs import bulk
from django_ojs.operations.jobs.bulk import Summary
from django_ojs.spec.errors import InvalidRequest
from django_ojs.spec.scopes import Scope

# The filter may be at the top level of a body, beside these fields.
_NOT_IN_FILTER = ("confirm", "filter", "job_ids")


class BulkView(AdminView):
    """A bulk action on the jobs of a list of ids or a filter."""

    action: ClassVar[Callable[..., Summary]]
    #: Another name of `succeeded`, which ojs-dead-letter §6.2 and some clients use.
    count_name: ClassVar[str]
    dead_letters: ClassVar[bool] = False

    def post(self, request: HttpRequest) -> dict[str, Any]:
        which = self._which(self.confirmed_body())
        result = type(self).action(which, within=self.access.queues)
        return {
            "action": result.action,
            "matched": result.matched,
            "succeeded": result.succeeded,
            "failed": result.failed,
            self.count_name: result.succeeded,
            "errors": [{"job_id": str(each.job_id), "error": each.error} for each in result.errors],
            "has_more": result.has_more,
        }

    def _which(self, data: Mapping[str, Any]) -> bulk.Which:
        job_ids, given = self.job_ids(data), fields.object_(data, "filter")
        if job_ids is not None and given is not None:
            raise InvalidRequest.of("filter", "must be left out where job_ids are given")
        if job_ids is not None:
            return job_ids
        if given is None:
            given = {name: value for name, value in data.items() if name not in _NOT_IN_FILTER}
        return self.body_filter(given, dead_letters=self.dead_letters)


class BulkRetry(BulkView):
    """Retry discarded jobs."""

    needs = {"POST": Scope.OPERATOR}
    action, count_name = bulk.retry_all, "retried"


class BulkCancel(BulkView):
    """Cancel jobs that have not ended."""

    needs = {"POST": Scope.OPERATOR}
    action, count_name = bulk.cancel_all, "cancelled"


class BulkDelete(BulkView):
    """Delete jobs that have ended."""

    needs = {"POST": Scope.ADMIN}
    action, count_name = bulk.delete_all, "deleted"


class DeadLetterBulkRetry(BulkView):
    """Retry dead letters (ojs-dead-letter §6.2)."""

    needs = {"POST": Scope.OPERATOR}
    action, count_name = partial(bulk.retry_all, dead_letters=True), "retried"
    dead_letters = True

"""Retry, cancel, delete many jobs at once (ojs-admin-api §8)."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

from rest_framework.request import Request

from django_ojs.http import fields
from django_ojs.http.access import Scope
from django_ojs.http.views.admin.base import AdminView
from django_ojs.operations.jobs import bulk
from django_ojs.operations.jobs.bulk import Summary

# What stands in a body beside the filter, where the filter's fields are not an object of their own.
_BESIDE = ("confirm", "filter", "job_ids")


class _Bulk(AdminView):
    #: What is done, and the name its number has in another dialect.
    act: ClassVar[Callable[..., Summary]]
    done: ClassVar[str]
    dead_letters: ClassVar[bool] = False

    def post(self, request: Request) -> dict[str, Any]:
        """Do it to the jobs that the body means, once it is confirmed."""
        data = self.body()
        fields.confirm(data)
        return answer(type(self).act(self._which(data), within=self.within), self.done)

    def _which(self, data: Mapping[str, Any]) -> bulk.Which:
        named, meant = self.job_ids(data), fields.object_(data, "filter")
        if named is not None and meant is not None:
            raise fields.refuse("filter", "must be left out where job_ids are given")
        if named is not None:
            return named
        if meant is None:
            meant = {name: value for name, value in data.items() if name not in _BESIDE}
        return self.body_filter(meant, dead_letters=self.dead_letters)


def answer(result: Summary, done: str) -> dict[str, Any]:
    """Return the answer of a bulk operation."""
    return {
        "action": result.action,
        "matched": result.matched,
        "succeeded": result.succeeded,
        "failed": result.failed,
        done: result.succeeded,
        "errors": [{"job_id": str(each.job_id), "error": each.error} for each in result.errors],
        "has_more": result.has_more,
    }


class BulkRetry(_Bulk):
    """Retry discarded jobs."""

    needs = {"POST": Scope.OPERATOR}
    act, done = bulk.retry_all, "retried"


class BulkCancel(_Bulk):
    """Cancel jobs that have not ended."""

    needs = {"POST": Scope.OPERATOR}
    act, done = bulk.cancel_all, "cancelled"


class BulkDelete(_Bulk):
    """Delete jobs that have ended."""

    needs = {"POST": Scope.ADMIN}
    act, done = bulk.delete_all, "deleted"


class DeadLetterBulkRetry(_Bulk):
    """Retry dead letters (ojs-dead-letter §6.2)."""

    needs = {"POST": Scope.OPERATOR}
    act, done = partial(bulk.retry_all, dead_letters=True), "retried"
    dead_letters = True

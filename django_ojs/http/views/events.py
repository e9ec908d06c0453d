"""The recorded events, read by polling (ojs-events §6.4)."""

from collections.abc import Collection
from typing import Any

from rest_framework.request import Request

from django_ojs.conf import settings
from django_ojs.http import fields
from django_ojs.http.views.base import OJSView
from django_ojs.operations.events import log
from django_ojs.spec.envelope import check_queue, check_type
from django_ojs.spec.errors import InvalidRequest, OJSError
from django_ojs.spec.scopes import Scope


class Events(OJSView):
    """The events after a cursor that match all filters, in the order of the commits, without gaps.

    The scope is that of reading jobs: an event has no arguments and no results.
    """

    needs = {"GET": Scope.READ}

    def get(self, request: Request) -> dict[str, Any]:
        query = request.query_params
        limits = settings().limits
        types = fields.query_list(query.getlist("types"))
        job_types = fields.query_list(query.getlist("job_types"))
        try:
            for name in job_types:
                check_type(name, limits)
        except OJSError:
            raise InvalidRequest.of("job_types", "must be types of jobs") from None
        page = log.read(
            types=types or None,
            queues=self._queues(fields.query_list(query.getlist("queues"))),
            job_types=job_types or None,
            after=query.get("after") or None,
            # A caller that is limited to some queues gets no events of workers either.
            within=self.access.queues,
            limit=fields.query_integer(
                query,
                "limit",
                default=log.DEFAULT_LIMIT,
                minimum=1,
                maximum=log.MAX_LIMIT,
            ),
        )
        return {"events": page.events, "cursor": page.cursor, "has_more": page.has_more}

    def _queues(self, names: list[str]) -> Collection[str] | None:
        for name in names:
            check_queue(name, settings().limits, field="queues")
            self.access.check_queue(name)
        return names or None

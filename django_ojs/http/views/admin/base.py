"""The base of the lists and bulk actions of the control plane: pages, filters, confirmation."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django_ojs.http import fields, pagination
from django_ojs.http.views.admin.job_rendering import summary
from django_ojs.http.views.base import OJSView
from django_ojs.operations.jobs import numbered_pages
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.operations.keyset import Count, PageRequest
from django_ojs.spec import ids
from django_ojs.spec.envelope import MAX_PRIORITY, MIN_PRIORITY
from django_ojs.spec.errors import InvalidRequest
from django_ojs.spec.states import State

# The fields of a filter. Others are rejected: a misspelt one would select more jobs than intended.
_FILTER: Final = (
    "queue",
    "state",
    "type",
    "since",
    "until",
    "priority",
    "error_type",
    "enqueued_after",
    "enqueued_before",
)


class AdminView(OJSView):
    """A list, or an action on many jobs."""

    def wanted(self) -> PageRequest:
        """Return the page that the query names. Raises InvalidRequest."""
        return pagination.numbered_page(self.request.GET)

    def listed(self, items: Iterable[Any], count: Count, **more: Any) -> dict[str, Any]:
        """Return the response of a list: the items of the page, and their total."""
        shown = pagination.numbered(self.wanted(), count)
        return {"items": list(items), **more, "pagination": shown}

    def search(self, which: JobFilter, default: numbered_pages.Sort) -> dict[str, Any]:
        """Return the page of these jobs that the query names, in the order that it names."""
        query = self.request.GET
        sort = fields.choice(query, "sort", numbered_pages.SORTS, default)
        order = fields.choice(query, "order", ("asc", "desc"), "desc")
        page = numbered_pages.read(which, self.wanted(), sort=sort, descending=order == "desc")
        return self.listed(map(summary, page.rows), page.count())

    def confirmed_body(self) -> dict[str, Any]:
        """Return the body, which confirms what cannot be undone. Raises InvalidRequest."""
        data = self.body()
        fields.confirm(data)
        return data

    def query_filter(self, *, dead_letters: bool = False) -> JobFilter:
        """Return the filter in the query. Raises InvalidRequest, PermissionDenied."""
        query = self.request.GET
        named = fields.query_list(query.getlist("state"))
        return self._filter(
            {
                "queue": query.get("queue") or None,
                "states": states_of(named, "state"),
                "type": query.get("type") or None,
                "since": fields.query_timestamp(query, "since"),
                "until": fields.query_timestamp(query, "until"),
                "priority": _query_priority(query),
                "error_type": query.get("error_type") or None,
            },
            dead_letters,
        )

    def body_filter(self, data: Mapping[str, Any], *, dead_letters: bool = False) -> JobFilter:
        """Return the filter in a body, under any of the accepted names of its fields.

        Raises InvalidRequest, for an unknown field as well, and PermissionDenied.
        """
        for name in data:
            if name not in _FILTER:
                raise InvalidRequest.of(f"filter.{name}", f"is not one of {', '.join(_FILTER)}")
        state = data.get("state")
        named = [state] if isinstance(state, str) else fields.strings(data, "state")
        if named == []:
            # An empty list must not mean all states, as a missing field does.
            raise InvalidRequest.of("filter.state", "must name at least one state")
        return self._filter(
            {
                "queue": fields.string(data, "queue"),
                "states": states_of(named or [], "filter.state"),
                "type": fields.string(data, "type"),
                "since": _first(data, "since", "enqueued_after"),
                "until": _first(data, "until", "enqueued_before"),
                "priority": fields.integer(
                    data, "priority", minimum=MIN_PRIORITY, maximum=MAX_PRIORITY
                ),
                "error_type": fields.string(data, "error_type"),
            },
            dead_letters,
        )

    def _filter(self, values: dict[str, Any], dead_letters: bool) -> JobFilter:
        if values["queue"] is not None:
            self.access.check_queue(values["queue"])
        if dead_letters:
            # `since` and `until` are about the time of the discard (ojs-dead-letter §9.1).
            values["ended_since"] = values.pop("since")
            values["ended_until"] = values.pop("until")
            values |= {"states": (State.DISCARDED,), "dead_letter": True}
        return JobFilter(within=self.access.queues, **values)

    def job_ids(self, data: Mapping[str, Any]) -> list[UUID] | None:
        """Return the ids in a body, or None without the field. Raises InvalidRequest."""
        given = fields.strings(data, "job_ids")
        if given is None:
            return None
        return [ids.parse_id(each, f"job_ids[{index}]") for index, each in enumerate(given)]


def states_of(names: Sequence[str], field: str) -> tuple[State, ...]:
    """Return the states with these names, each once. Raises InvalidRequest naming the field."""
    for name in names:
        if name not in list(State):
            raise InvalidRequest.of(field, f"must be one of {', '.join(State)}")
    return tuple(dict.fromkeys(map(State, names)))


def _query_priority(query: Mapping[str, str]) -> int | None:
    given = query.get("priority", "")
    digits = given.removeprefix("-")
    if not given:
        return None
    is_integer = digits.isascii() and digits.isdigit() and len(digits) <= 3
    if not is_integer or not MIN_PRIORITY <= int(given) <= MAX_PRIORITY:
        rule = f"must be an integer from {MIN_PRIORITY} to {MAX_PRIORITY}"
        raise InvalidRequest.of("priority", rule)
    return int(given)


def _first(data: Mapping[str, Any], *names: str) -> datetime | None:
    return next((found for name in names if (found := fields.timestamp(data, name))), None)

"""What the routes of the control plane share: pages, filters, and confirmation."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django_ojs.http import fields
from django_ojs.http.pagination import NumberedPage, numbered
from django_ojs.http.views.jobs import JobView
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.spec import ids
from django_ojs.spec.envelope import MAX_PRIORITY, MIN_PRIORITY
from django_ojs.spec.states import State

_STATES: Final = tuple(state.value for state in State)
# What a filter may hold. A field that is misspelt would select more than was meant.
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


class AdminView(JobView):
    """A resource of the control plane."""

    @property
    def within(self) -> frozenset[str] | None:
        """The queues that the caller is kept to; None: all."""
        return self.access.queues

    def page(self) -> NumberedPage:
        """Return the page that is asked for. Raises InvalidRequest."""
        return numbered(self.request.query_params)

    def listed(
        self, items: Iterable[Any], total: int, *, capped: bool = False, **more: Any
    ) -> dict[str, Any]:
        """Return the answer of a list: the items of the page, and how many there are in all."""
        pagination = self.page().describe(total=total, capped=capped)
        return {"items": list(items), **more, "pagination": pagination}

    def query_filter(self, *, dead_letters: bool = False) -> JobFilter:
        """Return the filter that the query asks for. Raises InvalidRequest, PermissionDenied."""
        query = self.request.query_params
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
        """Return the filter of a request's body, in each of its spellings.

        Raises InvalidRequest, for a field that no filter has as well, and PermissionDenied.
        """
        for name in data:
            if name not in _FILTER:
                raise fields.refuse(f"filter.{name}", f"is not one of {', '.join(_FILTER)}")
        state = data.get("state")
        named = [state] if isinstance(state, str) else fields.strings(data, "state")
        if named == []:
            # Not what is left out: whoever names no state on purpose does not mean all of them.
            raise fields.refuse("filter.state", "must name at least one state")
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
            # Of a dead letter the time that matters is that of its death (ojs-dead-letter §9.1).
            values["ended_since"] = values.pop("since")
            values["ended_until"] = values.pop("until")
            values |= {"states": (State.DISCARDED,), "dead_letter": True}
        return JobFilter(within=self.within, **values)

    def job_ids(self, data: Mapping[str, Any]) -> list[UUID] | None:
        """Return the ids that a body names, or None where it names none. Raises InvalidRequest."""
        given = fields.strings(data, "job_ids")
        if given is None:
            return None
        return [ids.parse_id(each, f"job_ids[{index}]") for index, each in enumerate(given)]


def states_of(named: Sequence[str], field: str) -> tuple[State, ...]:
    """Return the states of these names, each once. Raises InvalidRequest naming the field."""
    for name in named:
        if name not in _STATES:
            raise fields.refuse(field, f"must be one of {', '.join(_STATES)}")
    return tuple(dict.fromkeys(map(State, named)))


def _query_priority(query: Mapping[str, str]) -> int | None:
    given = query.get("priority", "")
    digits = given.removeprefix("-")
    if not given:
        return None
    known = digits.isascii() and digits.isdigit() and len(digits) <= 3
    if not known or not MIN_PRIORITY <= int(given) <= MAX_PRIORITY:
        raise fields.refuse("priority", f"must be an integer from {MIN_PRIORITY} to {MAX_PRIORITY}")
    return int(given)


def _first(data: Mapping[str, Any], *names: str) -> datetime | None:
    return next((found for name in names if (found := fields.timestamp(data, name))), None)

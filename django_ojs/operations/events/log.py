"""Read the kept events, in the order of their commits and without gaps (ojs-events §6.4)."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django_ojs.conf import settings
from django_ojs.models import Event
from django_ojs.spec import events
from django_ojs.spec.errors import InvalidRequest
from django_ojs.storage import events as stored
from django_ojs.storage.database import BATCH

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000

#: Events that a filter may pass over in one reading. A rare type among millions must not make a
#: request long; the cursor moves on all the same.
LOOKED_AT_ONCE = 20_000

#: The clocks of whoever made an event and of the database differ by less than this.
_CLOCKS = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """Some events, and where to go on. With `has_more` there is more to read at once.

    A page may be empty and have more: the filter passed over all it looked at.
    """

    events: list[dict[str, Any]]
    cursor: str
    has_more: bool


def read(
    *,
    types: Collection[str] | None = None,
    queues: Collection[str] | None = None,
    job_types: Collection[str] | None = None,
    after: str | None = None,
    limit: int = DEFAULT_LIMIT,
) -> Page:
    """Return the events after a cursor (or after an event's id), oldest first.

    `types` may be patterns, such as `job.*`. With `queues`, events that concern no queue are left
    out. A reader that goes on from each cursor sees every event once, however late its transaction
    committed. Raises InvalidRequest.
    """
    filters = _filters(types, queues, job_types)
    # Before the bounds are read, or an event placed meanwhile would be beyond them.
    assigned = stored.assign_positions()
    start = 0 if after is None else _position(after)
    bounds = stored.bounds()
    if bounds is None or bounds[1] <= start:
        return Page(events=[], cursor=str(start), has_more=False)
    first, last = bounds
    # What was pruned is not looked at.
    end = min(max(start, first - 1) + LOOKED_AT_ONCE, last)
    wanted = stored.kept().filter(position__gt=start, position__lte=end, **filters)
    found = list(wanted.order_by("position")[: limit + 1])
    full = len(found) > limit
    page = found[:limit]
    return Page(
        events=[render(event) for event in page],
        cursor=str(page[-1].position if full else end),
        has_more=full or end < last or assigned >= stored.ASSIGNED_AT_ONCE,
    )


def render(event: Event) -> dict[str, Any]:
    """Return the envelope of a kept event (ojs-events §2)."""
    return events.render(
        event_id=event.event_id,
        type=event.type,
        time=event.time,
        subject=event.subject,
        data=event.data,
        service=settings().service_name,
    )


def settle() -> int:
    """Give committed events their place in the order. Return how many. Reading does so as well."""
    return stored.assign_positions()


def prune(limit: int = BATCH) -> int:
    """Delete events that are older than the settings keep them. Return how many."""
    return stored.prune(settings().keep_events_for, limit)


def _filters(
    types: Collection[str] | None,
    queues: Collection[str] | None,
    job_types: Collection[str] | None,
) -> dict[str, Any]:
    filters: dict[str, Any] = {}
    if types is not None:
        try:
            filters["type__in"] = sorted(events.matching(types))
        except ValueError as error:
            raise InvalidRequest(f"types: {error}.", details={"field": "types"}) from None
    if queues is not None:
        filters["queue__in"] = sorted(set(queues) - {""})
    if job_types is not None:
        filters["data__job_type__in"] = sorted(job_types)
    return filters


def _position(after: str) -> int:
    if after.isascii() and after.isdigit() and len(after) <= 18:
        return int(after)
    found = _position_of(_event_id(after))
    if found is None:
        raise InvalidRequest(
            "after names an event that is not kept (any more).", details={"field": "after"}
        )
    return found


def _event_id(after: str) -> UUID:
    try:
        return events.parse_event_id(after, "after")
    except InvalidRequest:
        raise InvalidRequest(
            "after must be the cursor of an earlier answer, or the id of an event.",
            details={"field": "after"},
        ) from None


def _position_of(event_id: UUID) -> int | None:
    # There is no index on the ids, which would have to be kept up for each event: an id says when
    # it was made, and there is one on that.
    try:
        made = events.made_at(event_id)
        span = (made - _CLOCKS, made + _CLOCKS)
    except (ValueError, OverflowError):  # A year that no clock shows.
        return None
    near = stored.kept().filter(time__range=span)
    return near.filter(event_id=event_id).values_list("position", flat=True).first()


__all__ = ["DEFAULT_LIMIT", "MAX_LIMIT", "Page", "prune", "read", "render", "settle"]

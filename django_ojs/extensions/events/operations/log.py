"""Read the recorded events, in the order of their commits and without gaps (ojs-events §6.4)."""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import unquote
from uuid import UUID

from django.db.models import Q
from django.utils import timezone

from django_ojs.conf import of, settings
from django_ojs.extensions.events import spec as events
from django_ojs.extensions.events import storage as stored
from django_ojs.extensions.events.models import Event
from django_ojs.extensions.events.settings import EventSettings
from django_ojs.spec import published
from django_ojs.spec.errors import InvalidRequest
from django_ojs.storage.database import BATCH

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000

#: The most events that one request reads to find those that match, because a search for a rare type
#: among millions must not take long. The cursor advances in any case.
LOOKED_AT_ONCE = 20_000

#: The clock of the process that creates an event differs from the database's by less than this.
_CLOCKS = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class EventPage:
    """A page of events, and the cursor of the next page. `has_more` says whether that exists now.

    A page may be empty although there are more: no event that was read matched the filter.
    """

    events: list[dict[str, Any]]
    #: The position of each event, which is the cursor of a page that ends with it.
    positions: list[int] = field(default_factory=list)
    cursor: str
    has_more: bool
    #: The cursor that was given is beyond the last event: the database has lost events. The new
    #: cursor is the current end of the log.
    tail_lost: bool = False


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where a reader continues, and whether events after its cursor may no longer be kept.

    The missing events happened between `gap_start` and `gap_end`; each is None if it is unknown.
    """

    position: int
    has_gap: bool = False
    gap_start: datetime | None = None
    gap_end: datetime | None = None


def read(
    *,
    types: Collection[str] | None = None,
    queues: Collection[str] | None = None,
    job_types: Collection[str] | None = None,
    subject: str | None = None,
    where: Q | None = None,
    after: str | None = None,
    limit: int = DEFAULT_LIMIT,
    within: Collection[str] | None = None,
) -> EventPage:
    """Return the events after a cursor (or after an event's id), oldest first.

    `types` may be patterns, such as `job.*`. With `queues`, events that concern no queue are left
    out. A reader that continues from each cursor gets every event once, however late its
    transaction committed. `within` are the queues that the caller may use. `where` is another
    condition, such as `of_sources`. Raises InvalidRequest.
    """
    for name, names in (("types", types), ("queues", queues), ("job_types", job_types)):
        if isinstance(names, str):
            raise InvalidRequest.of(name, "must be a list of strings.")
    if limit < 1:
        raise InvalidRequest.of("limit", "must be at least 1.")
    which = _selecting(
        types=types, queues=queues, job_types=job_types, subject=subject, within=within
    )
    if where is not None:
        which &= where
    # Positions are assigned before the bounds are read, because an event that gets its position
    # later would be beyond them.
    assigned = stored.assign_positions()
    start = 0 if after is None else _position(after, within)
    bounds = stored.bounds()
    last = start if bounds is None else bounds[1]
    if last <= start:
        return EventPage(events=[], cursor=str(last), has_more=False, tail_lost=last < start)
    following = stored.kept().filter(position__gt=start).order_by("position")
    end = following.values_list("position", flat=True)[LOOKED_AT_ONCE - 1 :].first() or last
    wanted = stored.kept().filter(which, position__gt=start, position__lte=end)
    found = list(wanted.order_by("position")[: limit + 1])
    full = len(found) > limit
    page = found[:limit]
    return EventPage(
        events=[render(event) for event in page],
        # Every event in the result has a position.
        positions=[event.position or 0 for event in page],
        cursor=str(page[-1].position if full else end),
        has_more=full or end < last or assigned >= stored.ASSIGNED_AT_ONCE,
    )


def render(event: Event) -> dict[str, Any]:
    """Return the envelope of a recorded event (ojs-events §2)."""
    return events.render(
        event_id=event.event_id,
        type=event.type,
        time=event.time,
        subject=event.subject,
        data=event.data,
        service=settings().service_name,
    )


def state_before(job_id: UUID, state: str) -> str | None:
    """Return the state that a job had before this one, or None if that is not recorded."""
    found = stored.kept().filter(subject=str(job_id), type__in=sorted(published.TRANSITIONS))
    data = found.order_by("-pk").values_list("data", flat=True).first() or {}
    return data.get("previous_state") if data.get("state") == state else None


def latest() -> int:
    """Return the position of the latest committed event, or 0 if there is none."""
    # A reader that begins here must get no earlier event, however many wait for a position.
    while stored.assign_positions() == stored.ASSIGNED_AT_ONCE:
        pass
    bounds = stored.bounds()
    return 0 if bounds is None else bounds[1]


def resume(cursor: str, within: Collection[str] | None = None) -> Resumed:
    """Return where a reader with a cursor continues. Raises InvalidRequest if it is unknown."""
    stored.assign_positions()
    position, bounds = _position(cursor, within), stored.bounds()
    # A reader at 0 wants to begin with the oldest event that is kept.
    if bounds is None or not position or bounds[0] - 1 <= position:
        return Resumed(position)
    times = stored.kept().filter(position=bounds[0]).values_list("time", flat=True)
    return Resumed(position, has_gap=True, gap_end=times.first())


def resume_from_unknown(event_id: str) -> Resumed:
    """Let a reader continue from now, because its last event is no longer kept.

    The gap begins with the time that the event's id contains.
    """
    now = timezone.now()
    start = None
    with suppress(InvalidRequest, ValueError, OverflowError):
        start = min(now, events.made_at(_event_id(event_id)))
    return Resumed(latest(), has_gap=True, gap_start=start, gap_end=now)


def old_condition() -> str:
    """Return the SQL condition that `prune` may find any rows."""
    return stored.old_condition(of(EventSettings).keep_events_for)


def prune(limit: int = BATCH) -> int:
    """Delete events that are past the retention time of the settings. Return how many."""
    return stored.prune(of(EventSettings).keep_events_for, limit)


def matching_types(patterns: Collection[str]) -> Collection[str]:
    """Return the types of events that patterns match. Raises InvalidRequest."""
    try:
        return published.matching(patterns)
    except ValueError as error:
        raise InvalidRequest(f"types: {error}.", details={"field": "types"}) from None


def _selecting(
    *,
    types: Collection[str] | None,
    queues: Collection[str] | None,
    job_types: Collection[str] | None,
    subject: str | None,
    within: Collection[str] | None,
) -> Q:
    """Return the condition for the filters of `read`. Raises InvalidRequest."""
    filters: dict[str, Any] = {}
    if queues is None:
        queues = within
    elif within is not None:
        queues = set(queues) & set(within)
    if subject is not None:
        filters["subject"] = subject
    if types is not None:
        filters["type__in"] = sorted(matching_types(types))
    if queues is not None:
        filters["queue__in"] = sorted(set(queues) - {""})
    if job_types is not None:
        filters["data__job_type__in"] = sorted(job_types)
    return Q(**filters)


def of_sources(patterns: Collection[str]) -> Q:
    """Return the condition that the source of an event is among these (ojs-events §6.1).

    A pattern that ends in `*` stands for all sources that begin with the rest of it. Sources are
    not stored but derived from the data, so the id of a worker is matched only as a whole. Raises
    InvalidRequest for a `*` in another place.
    """
    service = settings().service_name
    workers = f"ojs://{service}/workers/"
    named = {pattern for pattern in patterns if not pattern.endswith("*")}
    starts = tuple({pattern[:-1] for pattern in patterns if pattern.endswith("*")})
    for pattern in (*named, *starts):
        if "*" in pattern:
            raise InvalidRequest.of("sources", "may have * at the end only")
    for start in starts:
        if start.startswith(workers) and start != workers:
            raise InvalidRequest.of("sources", "must name the id of a worker whole, without *")
    types = [
        type
        for type in sorted(published.EventType)
        if (source := events.source(type, {}, service)) in named or source.startswith(starts)
    ]
    by_worker = Q(data__has_key="worker_id") & ~Q(data__worker_id="")
    found = Q(type__in=types) & ~by_worker
    if workers.startswith(starts):
        return found | by_worker
    ids = {unquote(name.removeprefix(workers)) for name in named if name.startswith(workers)}
    return found | Q(data__worker_id__in=sorted(key for key in ids if key and key.isprintable()))


def _position(after: str, within: Collection[str] | None) -> int:
    if after.isascii() and after.isdigit() and len(after) <= 18:
        return int(after)
    found = _position_of(_event_id(after), within)
    if found is None:
        raise InvalidRequest(
            "after names an event that was not or is no longer kept.", details={"field": "after"}
        )
    return found


def _event_id(after: str) -> UUID:
    try:
        return events.parse_event_id(after, "after")
    except InvalidRequest:
        raise InvalidRequest(
            "after must be the cursor of an earlier page, or the id of an event.",
            details={"field": "after"},
        ) from None


def _position_of(event_id: UUID, within: Collection[str] | None) -> int | None:
    # There is no index on the ids, which each insert would have to update. An id contains the time
    # of its creation, which has an index.
    try:
        made = events.made_at(event_id)
        span = (made - _CLOCKS, made + _CLOCKS)
    except (ValueError, OverflowError):  # The id contains a time outside of the range of dates.
        return None
    near = stored.kept().filter(time__range=span)
    if within is not None:
        near = near.filter(queue__in=sorted(within))
    return near.filter(event_id=event_id).values_list("position", flat=True).first()

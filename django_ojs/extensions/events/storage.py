"""The recorded events: an append-only table, read in the order of positions.

`commit_order` assigns the positions.
"""

from collections.abc import Collection
from datetime import timedelta
from typing import Any

from django.db.models import Max, Min, QuerySet, Subquery
from django.db.models.functions import Coalesce, Now

from django_ojs.extension import WantedEvents
from django_ojs.extensions.events import commit_order
from django_ojs.extensions.events.models import Event
from django_ojs.spec import ids, json
from django_ojs.spec.published import EventType, NewEvent, PastEvent
from django_ojs.storage import database, notify, raw_queries

#: Events that get positions in one transaction. No other process can assign any until its end.
ASSIGNED_AT_ONCE = 1000


def kept() -> QuerySet[Event]:
    """Return all recorded events."""
    return Event.primary.all()


def latest(wanted: WantedEvents) -> list[PastEvent]:
    """Return events, the latest first."""
    found = of_subject = kept()
    if wanted.subject is not None:
        found = of_subject = found.filter(subject=wanted.subject)
    if wanted.among is not None:
        newest_first = of_subject.order_by("-pk").values("pk")
        if wanted.subject is None:  # Ids have few gaps, so their difference counts the events.
            found = found.filter(pk__gt=Subquery(newest_first[:1]) - wanted.among)
        else:
            oldest = Subquery(newest_first[wanted.among - 1 : wanted.among])
            found = found.filter(pk__gte=Coalesce(oldest, 0))
    if wanted.within is not None:
        found = found.filter(time__gt=Now() - wanted.within)
    found = found.filter(**{f"data__{name}": value for name, value in wanted.data.items()})
    return [
        PastEvent(
            type=EventType(event.type),
            subject=event.subject,
            queue=event.queue,
            data=event.data,
            time=event.time,
        )
        for event in found.filter(type__in=wanted.types).order_by("-pk")[: wanted.limit]
    ]


def add(happened: Collection[NewEvent]) -> None:
    """Store events in the current transaction."""
    if not happened:
        return
    rows: list[dict[str, Any]] = [
        {
            "event_id": str(key),
            "type": event.type.value,
            "subject": event.subject,
            "queue": event.queue,
            "data": event.data,
        }
        for key, event in zip(ids.many(len(happened)), happened, strict=True)
    ]
    if database.dialect().name == "mariadb":
        with database.connection().cursor() as cursor:
            text = commit_order.STATEMENTS.text("add_event")
            cursor.executemany(text, [{**row, "data": json.dumps(row["data"])} for row in rows])
    else:
        commit_order.STATEMENTS.rows("add_events", {"events": json.dumps(rows)}, is_repeated=True)
    notify.readers_of_events()


def assign_positions(limit: int = ASSIGNED_AT_ONCE) -> int:
    """Assign positions to committed events that have none. Return how many."""
    return commit_order.assign(Event, database.alias(), limit)


def unsettled_condition() -> str:
    """Return the SQL condition that `assign_positions` has anything to do."""
    return f"({commit_order.unpositioned(Event)}) IS NOT NULL"


def bounds() -> tuple[int, int] | None:
    """Return the lowest and the highest position, from the two ends of the index."""
    # Two aggregates in one statement would read the table.
    first = kept().aggregate(position=Min("position"))["position"]
    last = kept().aggregate(position=Max("position"))["position"]
    return None if first is None or last is None else (first, last)


def old_condition(keep: timedelta) -> str:
    """Return the SQL condition that `prune` may find any rows."""
    return raw_queries.is_older(Event, "time", "1 = 1", keep)


def prune(keep: timedelta, limit: int) -> int:
    """Delete events that are older than `keep`, oldest first. Return how many.

    The newest one stays at any age: positions continue from it if the clock was set back, and a
    cursor beyond it shows that the database has lost events.
    """
    last = kept().aggregate(position=Max("position"))["position"]
    old = kept().filter(time__lt=Now() - keep, position__lt=last or 0).order_by("time", "pk")
    return 0 if last is None else database.delete_free(old, limit)

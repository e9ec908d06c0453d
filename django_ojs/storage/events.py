"""The kept events: an append-only table, and the order in which it is read.

An id is given out before the commit, so a reader that went by ids would pass over an event whose
transaction commits late. Positions are given to committed events alone, by one at a time: what
commits later always gets a higher one.
"""

from collections.abc import Collection
from datetime import timedelta

from django.db import IntegrityError, OperationalError
from django.db.models import Max, Min, QuerySet
from django.db.models.functions import Now

from django_ojs.models import Event
from django_ojs.spec import events, ids, json
from django_ojs.storage import database

#: Events that get their positions in one transaction; the others that want to place some wait.
PLACED_AT_ONCE = 1000

_PLACE = """
UPDATE ojs_event SET position = placed.position
FROM (SELECT id, row_number() OVER (ORDER BY id)
                 + (SELECT COALESCE(max(position), 0) FROM ojs_event) AS position
      FROM (SELECT id FROM ojs_event WHERE position IS NULL ORDER BY id LIMIT %s) AS unplaced
     ) AS placed
WHERE ojs_event.id = placed.id
"""


def kept() -> QuerySet[Event]:
    """All kept events."""
    return Event.primary.all()


def add(happened: Collection[events.Event]) -> None:
    """Store events in the current transaction, in one statement."""
    if not happened:
        return
    text = json.dumps(
        [
            {
                "event_id": str(key),
                "type": event.type.value,
                "subject": event.subject,
                "queue": event.queue,
                "data": event.data,
            }
            for key, event in zip(ids.many(len(happened)), happened, strict=True)
        ]
    )
    database.dialect().add_events(database.connection(), text)


def place(limit: int = PLACED_AT_ONCE) -> int:
    """Give committed events without a position theirs, in the order of ids. Return how many.

    Without such events it takes no lock. A session that may only read places none.
    """
    dialect = database.dialect()
    # Not `exists()`: with the order the planner takes the index, which is mostly empty.
    unplaced = kept().filter(position=None).order_by("pk").values_list("pk", flat=True)
    if unplaced.first() is None or not dialect.can_write(database.connection()):
        return 0
    try:
        return _place(limit)
    except IntegrityError:
        # Under REPEATABLE READ it does not see that, and gives a position out twice. Nothing was
        # placed, and nothing is lost: it is done by whoever was faster, or next time.
        return 0
    except OperationalError as error:
        if dialect.lost_a_race(error):
            return 0
        raise


@database.write_transaction
def _place(limit: int) -> int:
    database.dialect().take_turns(database.connection(), "events")
    # A statement of its own, so that it sees what was committed while it waited.
    with database.connection().cursor() as cursor:
        cursor.execute(_PLACE, [limit])
        return int(cursor.rowcount)


def bounds() -> tuple[int, int] | None:
    """Return the lowest and the highest position, from the two ends of the index."""
    # Two aggregates in one statement would read the table.
    first = kept().aggregate(position=Min("position"))["position"]
    last = kept().aggregate(position=Max("position"))["position"]
    return None if first is None or last is None else (first, last)


def prune(keep: timedelta, limit: int) -> int:
    """Delete events that are older than this, oldest first. Return how many.

    The newest one stays whatever its age: positions go on from it, and a reader that comes back
    after a quiet month must not be handed out positions it has passed.
    """
    last = kept().aggregate(position=Max("position"))["position"]
    old = kept().filter(time__lt=Now() - keep, position__lt=last or 0).order_by("time", "pk")
    if last is None or old.values_list("pk", flat=True).first() is None:
        return 0
    return _delete(old, limit)


@database.write_transaction
def _delete(old: QuerySet[Event], limit: int) -> int:
    keys = list(old.select_for_update(skip_locked=True).values_list("pk", flat=True)[:limit])
    return int(kept().filter(pk__in=keys)._raw_delete(database.alias())) if keys else 0


__all__ = ["PLACED_AT_ONCE", "add", "bounds", "kept", "place", "prune"]

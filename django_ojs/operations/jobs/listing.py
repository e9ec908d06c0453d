"""A page of jobs in the order of an index: no offset, no count, no look that may take for ever.

Each kind of jobs has the index that some operation works by, and is shown in its order. What a
filter names besides is looked for along that order, among `LOOK` jobs at a time; the answer says
where the look ended, and the next one begins there.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet, Value

from django_ojs.models import Job
from django_ojs.operations.jobs import cursor
from django_ojs.operations.jobs.cursor import Order, Place
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.operations.jobs.search import SHOWN
from django_ojs.spec.states import TERMINAL, State
from django_ojs.storage.dialects.expressions import Moment

#: Jobs that one look goes through to find those of a filter.
LOOK: Final = 100_000

#: As far as the jobs of a filter are counted.
MOST: Final = 10_000

#: A client's clock is not further ahead than this.
_CLOCKS: Final = timedelta(hours=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_DUE: Final = (State.SCHEDULED, State.RETRYABLE)
_NEWEST_FIRST: Final = ("-pk",)
_LAST_ENDED_FIRST: Final = ("-finished_at", "-pk")


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """Some jobs, and the order of an index in which they are met.

    `whole`: a filter says nothing besides, so that each of them is meant.
    """

    among: dict[str, Any]
    order: Order
    whole: bool = False

    def look(
        self, which: JobFilter, after: Place | None, look: int
    ) -> tuple[QuerySet[Job], Place | None]:
        """Return the jobs of a filter that one look finds, and where it ends; None: at the end."""
        rest = Job.primary.filter(**self.among).order_by(*self.order)
        if after is not None:
            rest = cursor.beyond(rest, after, self.order)
        if self.whole:
            return rest, None
        # From the index alone: what a look costs is known before it begins.
        names = [name.removeprefix("-") for name in self.order]
        end = next(iter(rest.values_list(*names)[look - 1 : look]), None)
        wanted = which.narrow(rest)
        return (wanted if end is None else cursor.until(wanted, end, self.order)), end


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """Some jobs, in order. `end`: where to go on; None: there are no more.

    `looked`: the page is not full, and yet there may be more beyond so many jobs.
    """

    jobs: list[Job]
    end: Place | None = None
    looked: int | None = None


def ways(which: JobFilter) -> list[Way]:
    """Return how the jobs of a filter are gone through: two ways of one order are merged."""
    state = which.states[0] if len(which.states) == 1 else None
    if which.ids:
        return [Way(among={"pk__in": which.ids}, order=_NEWEST_FIRST)]
    if which.dead_letter and state in (None, State.DISCARDED):
        whole = _only(which, "states", "dead_letter")
        dead = {"dead_letter": True, **_ended(which)}
        return [Way(among=dead, order=_LAST_ENDED_FIRST, whole=whole)]
    whole = _only(which, "states")
    if state in TERMINAL:
        # Each kind of finished job has a range of the index.
        kinds = (
            (False, True) if state is State.DISCARDED and which.dead_letter is None else (False,)
        )
        return [
            Way(
                among={"state": state, "dead_letter": dead, **_ended(which)},
                order=_LAST_ENDED_FIRST,
                whole=whole,
            )
            for dead in kinds
        ]
    if state in _DUE:
        return [Way(among={"state__in": _DUE}, order=("due_at", "pk"))]
    if state is State.AVAILABLE and which.queue is not None:
        whose = {"state": state, "queue": which.queue}
        whole = _only(which, "states", "queue")
        return [Way(among=whose, order=("-priority", "enqueued_at", "pk"), whole=whole)]
    if state in (State.ACTIVE, State.PENDING):
        return [Way(among={"state": state}, order=_NEWEST_FIRST, whole=whole)]
    newest: dict[str, Any] = {} if which.until is None else {"pk__lte": _last_id(which.until)}
    return [Way(among=newest, order=_NEWEST_FIRST, whole=_only(which))]


def _ended(which: JobFilter) -> dict[str, Any]:
    # Where the look begins, and not only what it finds.
    if which.ended_until is None:
        return {}
    return {"finished_at__lt": Moment(Value(which.ended_until))}


def _last_id(until: datetime) -> UUID:
    # An id tells when a client made it, and that was before the job was stored.
    made = max(timedelta(0), until + _CLOCKS - _EPOCH) // timedelta(milliseconds=1)
    return UUID(int=min(made, 2**48 - 1) << 80 | (1 << 80) - 1)


def order_of(which: JobFilter) -> Order:
    """Return the order in which the jobs of a filter are met."""
    return ways(which)[0].order


def walk(
    which: JobFilter,
    *,
    after: Place | None = None,
    limit: int = 50,
    backwards: bool = False,
    look: int = LOOK,
) -> Found:
    """Return the next jobs of a filter after a place, with the fields of `search.SHOWN`.

    `backwards` goes towards the beginning, and returns the jobs in their order all the same.
    """
    paths = ways(which)
    if backwards:
        paths = [replace(way, order=_turned(way.order)) for way in paths]
    order = paths[0].order
    found: list[Job] = []
    ends: list[Place] = []
    for way in paths:
        wanted, end = way.look(which, after, look)
        found += wanted.only(*SHOWN)[: limit + 1]
        ends += [] if end is None else [end]
    nearest = min(ends, key=lambda end: cursor.rank(end, order), default=None)
    ranked = sorted((cursor.rank(cursor.of(job, order), order), job.pk, job) for job in found)
    if nearest is not None:
        # Beyond it, only one of two ways has been looked along.
        ranked = [each for each in ranked if each[0] <= cursor.rank(nearest, order)]
    page = [job for _, _, job in ranked[:limit]]
    if len(ranked) > limit:
        end, looked = cursor.of(page[-1], order), None
    else:
        end, looked = nearest, None if nearest is None else look
    return Found(jobs=page[::-1] if backwards else page, end=end, looked=looked)


def number(which: JobFilter, *, look: int = LOOK) -> tuple[int, bool]:
    """Return how many jobs a filter means, and whether there may be more than that.

    Exact where the counts know it, and else what the first look finds, up to 10,000.
    """
    if which.counted:
        return which.number(), False
    seen, more = 0, False
    for way in ways(which):
        wanted, end = way.look(which, None, look)
        seen += wanted.order_by()[: MOST + 1].count()
        more = more or end is not None
    return min(seen, MOST), more or seen > MOST


def _turned(order: Order) -> Order:
    return tuple(name[1:] if name.startswith("-") else f"-{name}" for name in order)


def _only(which: JobFilter, *named: str) -> bool:
    return all(getattr(which, name) in (None, ()) for name in which.__slots__ if name not in named)


__all__ = ["LOOK", "MOST", "Found", "Way", "number", "order_of", "walk", "ways"]

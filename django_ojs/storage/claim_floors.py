"""Where the last claim of a queue ended, for claims while an old snapshot is open.

While a transaction keeps its snapshot open (a dump, a forgotten session), the index entries of
claimed jobs cannot be removed, and each claim reads all of them again: with 100,000 of them it
takes a tenth of a second and more. A claim from a floor starts where the last one ended.

When a floor is made, no job before it in the queue is available. Jobs that become available later
come after it, because jobs are ordered by `enqueued_at`, the time at which they became available.
There are three exceptions: the job of a transaction that committed late, a job that was returned
and kept its place, and a job that another transaction had locked. A claim from the floor does not
see them. It never takes a job twice and never loses one: it is the same conditional UPDATE, and a
floor ends after `LONGEST` seconds at the most, when a claim starts from the beginning again. So
these jobs are claimed up to `LONGEST` seconds later, and all others in their order.

A floor is made only if a claim was slow and an old transaction is open. Otherwise every claim
starts from the beginning.
"""

import time
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from django_ojs.spec.envelope import MIN_PRIORITY
from django_ojs.storage import database, in_memory_state
from django_ojs.storage.claimed_job import Claimed
from django_ojs.storage.dialects.rows import Floor
from django_ojs.storage.dialects.server import OldestTransaction

#: A claim that takes at least this many seconds is slow.
SLOW: Final = 0.02
#: A floor lasts this many times as long as the claim that made it, so that claims from the
#: beginning take a tenth of the time.
RATIO: Final = 10
#: A floor lasts at most this many seconds.
LONGEST: Final = 5.0
#: A floor is made only if a transaction has been open for longer than this.
OLD: Final = timedelta(seconds=5)
#: Seconds between two queries for such a transaction: on a busy machine many claims are slow.
ASKED: Final = 1.0
#: Jobs of a higher priority whose transactions took less time than this are seen at once.
_MARGIN: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class _Known:
    floor: Floor
    until: float


class Floors:
    """The floors of this process, by queue."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        # When the last query that found an old transaction was executed, and until when its answer
        # is used. The query reads all sessions, so that many processes that ask after each claim
        # would keep the server busy.
        self._old_at: datetime | None = None
        self._asked_until = 0.0

    def of(self, queue: str) -> Floor | None:
        """Return the floor for the next claim, or None if it has to start from the beginning."""
        known = self._known.get(queue)
        return known.floor if known is not None and time.monotonic() < known.until else None

    @property
    def in_use(self) -> bool:
        """Whether claims of any queue start from a floor, so that they do not see all jobs."""
        now = time.monotonic()
        return any(now < known.until for known in list(self._known.values()))

    def note(self, queue: str, floor: Floor | None, jobs: list[Claimed], seconds: float) -> None:
        """Note what a claim from this floor returned, in order, and how long it took."""
        if floor is None:
            self._start(queue, jobs, seconds)
        elif jobs and jobs[-1].priority <= floor.priority:
            last = jobs[-1]
            moved = replace(floor, priority=last.priority, enqueued_at=last.enqueued_at)
            known = self._known.get(queue)
            if known is not None:
                self._known[queue] = replace(known, floor=moved)

    def _start(self, queue: str, jobs: list[Claimed], seconds: float) -> None:
        asked_at = time.monotonic()
        if seconds >= SLOW and asked_at >= self._asked_until:
            for oldest in database.dialect().read(database.connection(), OldestTransaction):
                age = oldest.age or timedelta(0)
                self._old_at = oldest.now if age > OLD else None
                self._asked_until = asked_at + max(ASKED, (OLD - age).total_seconds())
        if seconds < SLOW or self._old_at is None:
            self._known.pop(queue, None)
            return
        since = self._old_at - timedelta(seconds=seconds) - _MARGIN
        if jobs:
            floor = Floor(jobs[-1].priority, jobs[-1].enqueued_at, since)
        else:
            # The floor is below all priorities, so that every later job has a higher one.
            floor = Floor(MIN_PRIORITY - 1, since, since)
        until = time.monotonic() + min(RATIO * seconds, LONGEST)
        self._known[queue] = _Known(floor, until)

    def reset(self) -> None:
        """Forget the floors."""
        self._known.clear()
        self._old_at, self._asked_until = None, 0.0


floors: Final = in_memory_state.register(Floors())

"""Counts by queue and state without a scan: triggers update them, maintenance folds them.

Dead letters are counted apart from the other discarded jobs.

On PostgreSQL a statement that changes jobs appends what it changed to `ojs_count_change`; a count
is the folded row plus the changes since. On SQLite, which has one writer, triggers update
the folded row itself.
"""

from collections.abc import Iterable
from typing import Final

from django_ojs import hooks
from django_ojs.spec.states import WAITING, State
from django_ojs.storage import database
from django_ojs.storage.dialects.rows import Difference

#: A queue's jobs by state; states without jobs are left out.
ByState = dict[State, int]

#: The name under which dead letters are counted, in place of their state.
_DEAD: Final = "dead_letter"


def by_queue(queues: Iterable[str] | None = None) -> dict[str, ByState]:
    """Return the counts of these queues, or of all that have ever had a job."""
    wanted = None if queues is None else list(queues)
    found = database.dialect().counts(database.connection(), "queue, state", queues=wanted)
    return summed((queue, state, number) for queue, state, number, _ in found)


def queues_with(states: Iterable[State]) -> frozenset[str]:
    """Return the queues that have a job in one of these states."""
    found = database.dialect().counts(
        database.connection(), "queue", states=[each.value for each in states]
    )
    return frozenset(queue for queue, number, _ in found if number > 0)


def summed(rows: Iterable[tuple[str, str | None, int | None]]) -> dict[str, ByState]:
    """Return the counts of rows of (queue, state, number), in the order of the queues."""
    found: dict[str, ByState] = {}
    for queue, state, number in rows:
        by_state = found.setdefault(queue, {})
        if state and number:
            _add(by_state, state, int(number))
    return found


def totals(queues: Iterable[str] | None = None, *, dead_letter: bool | None = None) -> ByState:
    """Return the sums for these queues or for all; states without jobs are left out.

    `dead_letter`: count only dead letters, or only other jobs.
    """
    wanted = None if queues is None else list(queues)
    total: ByState = {}
    found = database.dialect().counts(database.connection(), "state", queues=wanted)
    for state, number, _ in found:
        if dead_letter in (None, state == _DEAD):
            _add(total, state, number)
    return total


def dead_letters() -> int:
    """Return the number of all dead letters."""
    return totals(dead_letter=True).get(State.DISCARDED, 0)


def _add(counts: ByState, counted: str, number: int) -> None:
    if number:
        state = State.DISCARDED if counted == _DEAD else State(counted)
        counts[state] = counts.get(state, 0) + number


def depth(queue: str) -> int:
    """Return how many jobs wait in a queue: available, scheduled or retryable (backpressure §3)."""
    counts = by_queue([queue]).get(queue, {})
    return sum(number for state, number in counts.items() if state in WAITING)


def changes_condition() -> str:
    """Return the SQL condition that `fold` has something to do."""
    if database.dialect().has_one_writer:
        return "1 = 0"  # Triggers write the counts themselves.
    return "EXISTS (SELECT 1 FROM ojs_count_change)"


@database.retry_contention
def fold() -> int:
    """Fold the changes into the counts. Return how many there were."""
    return database.dialect().fold_counts(database.connection())


def vacuum() -> None:
    """Release the space of folded changes."""
    database.dialect().vacuum_counts(database.connection())


def differences() -> list[Difference]:
    """Compare the counts with the jobs, and return where they differ.

    A difference has the queue, the state, and the counted and actual numbers of jobs and bytes. One
    statement reads every job, so that both sides are of the same snapshot.
    """
    return database.dialect().read(database.connection(), Difference)


@database.write_transaction
def repair() -> list[Difference]:
    """Correct the counts, also while jobs change. Return the differences, as `differences` does."""
    wrong = database.dialect().repair_counts(database.connection())
    if wrong:
        hooks.call_within(hooks.registry.counts_repaired)
    return wrong


class CountKeeper:
    """Two maintenance steps for the counts; the second runs when the first changed something."""

    def __init__(self) -> None:
        self._folded = 0

    def fold(self) -> int:
        """Fold the changes into the counts. Return how many changes there were."""
        folded = fold()
        self._folded += folded
        return folded

    def vacuum_counts(self) -> int:
        """Release the space of folded changes."""
        if self._folded:
            vacuum()
        self._folded = 0
        return 0

"""Rollups by minute: each process sums up in memory, and writes within ten seconds and at its end.

A process that is killed loses up to ten seconds of its figures, but no jobs and no counts.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from django.db import Error

from django_ojs.extension import Change, Count, Numbers
from django_ojs.extensions.statistics.models import Rollup
from django_ojs.spec.states import State, Trigger
from django_ojs.spec.times import elapsed
from django_ojs.storage import database, in_memory_state
from django_ojs.storage.background_writer import BackgroundWriter

logger = logging.getLogger("django_ojs")

#: Seconds after which figures are written in any case, by a thread with a connection of its own.
FLUSH_EVERY = 10.0
#: Seconds after which a thread that has a connection and no transaction writes them, mostly before
#: FLUSH_EVERY is over and another connection has to be opened.
DUE = 9.0

#: The last bucket has all durations above 70 minutes.
BUCKETS = 24

#: Steps of the search for a percentile inside its bucket, which find it to a thousandth of the
#: bucket.
_BISECTIONS = 12

#: The kinds of counts, which are indexes of COLUMNS.
ENQUEUED, COMPLETED, FAILED, DISCARDED, REJECTED, DROPPED, LOST, PROGRESS_UPDATES = range(8)
HISTORY_FAILURES = 8
COLUMNS = (
    *("enqueued", "completed", "failed", "discarded", "rejected", "dropped", "lost"),
    *("progress_updates", "history_failures"),
)

#: Minutes since 1970, a queue and a type.
Key = tuple[int, str, str]

#: It is called with what is counted, the queue, the type, the number of jobs, and the seconds that
#: they waited and ran.
Observer = Callable[[int, str, str, int, float | None, float | None], object]
#: Instrumentation that counts the same (OpenTelemetry). It must not raise.
observers: list[Observer] = []


class _Figures:
    __slots__ = ("counts", "ran", "waited")

    def __init__(self) -> None:
        self.counts = [0] * len(COLUMNS)
        self.waited = [0] * BUCKETS
        self.ran = [0] * BUCKETS


class Accumulator:
    """The figures of this process that it has not written yet."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Start from zero; in a forked child, a thread of its parent may hold the lock."""
        self.lock = threading.Lock()
        self.figures: dict[Key, _Figures] = {}
        self.written_at = time.monotonic()

    def take(self) -> dict[Key, _Figures]:
        """Return the figures, and start again from zero."""
        with self.lock:
            writer.cancel()
            self.written_at = time.monotonic()
            taken, self.figures = self.figures, {}
        return taken

    def reset(self) -> None:
        """Drop the figures."""
        self.take()


accumulator = in_memory_state.register(Accumulator())
writer = BackgroundWriter(
    "ojs-figures",
    lambda: flush(),
    forget=accumulator.begin,
    delay=FLUSH_EVERY,
    runs_in_tests=False,
)


def bucket(seconds: float) -> int:
    """Return the bucket of a duration: the n-th has durations of less than 2**n ms."""
    milliseconds = int(seconds * 1000)
    return min(BUCKETS - 1, milliseconds.bit_length())


def note_all(
    what: int, changes: Sequence[tuple[str, str, int, float | None, float | None]]
) -> None:
    """Count committed changes: queue, type, number, and the seconds waited and run of each."""
    minute = int(datetime.now(UTC).timestamp() // 60)
    with accumulator.lock:
        for queue, type, number, waited, ran in changes:
            key = minute, queue, type
            figures = accumulator.figures.get(key)
            if figures is None:
                figures = accumulator.figures[key] = _Figures()
                writer.request()
            figures.counts[what] += number
            if waited is not None:
                figures.waited[bucket(waited)] += 1
            if ran is not None:
                figures.ran[bucket(ran)] += 1
    if observers:
        for queue, type, number, waited, ran in changes:
            for observer in observers:
                observer(what, queue, type, number, waited, ran)


def add(what: int, jobs: Mapping[tuple[str, str], int]) -> None:
    """Add something that happened now, with the number of jobs for each (queue, type)."""
    note_all(what, [(queue, type, number, None, None) for (queue, type), number in jobs.items()])
    flush_if_due()


def flush_if_due() -> None:
    """Write the figures if they are due and no transaction of the caller's is open."""
    due = time.monotonic() - accumulator.written_at >= DUE
    if due and accumulator.figures and not database.connection().in_atomic_block:
        flush()


def flush_after_request(**kwargs: object) -> None:
    """Write the figures if they are due, at the end of a request."""
    if not accumulator.figures or time.monotonic() - accumulator.written_at < DUE:
        return
    link = database.connection()
    was_open = link.connection is not None
    flush_if_due()
    if not was_open:
        # Django has closed the connections of the request already.
        link.close()


def flush() -> int:
    """Write this process's figures now. Return the number of rows; 0 when it failed."""
    rows = [
        Rollup(
            minute=datetime.fromtimestamp(minute * 60, UTC),
            queue=queue,
            type=type,
            **dict(zip(COLUMNS, figures.counts, strict=True)),
            waited=figures.waited,
            ran=figures.ran,
        )
        for (minute, queue, type), figures in accumulator.take().items()
    ]
    if not rows:
        return 0
    try:
        database.retried(lambda: Rollup.primary.bulk_create(rows))
    except Error as error:
        # An enqueue must not fail because of figures for charts.
        logger.warning(
            "The figures of the last seconds were not written (%s).", error.__class__.__name__
        )
        return 0
    return len(rows)


def percentile(histogram: Sequence[int], share: float) -> float | None:
    """Return the duration in seconds that this share (0 to 1) of the jobs did not exceed.

    Return None without jobs. A bucket is a factor of two wide. Inside it, the number of jobs up to
    a duration is taken to be a curve that joins the curves of its neighbours, which is closer than
    an even spread: few jobs are in the upper half of a bucket whose next one is nearly empty.
    """
    total = sum(histogram)
    if not total:
        return None
    wanted = share * total
    below = 0
    for index, number in enumerate(histogram):
        if number and below + number >= wanted:
            if index == 0:
                return (wanted - below) / number / 1000
            following = histogram[index + 1] if index + 1 < len(histogram) else 0
            part = _part(histogram[index - 1], number, following, wanted - below)
            return float(2.0 ** (index - 1 + part)) / 1000
        below += number
    return 2.0 ** (BUCKETS - 1) / 1000


def _part(before: int, number: int, after: int, wanted: float) -> float:
    """Return the part of a bucket, by the logarithm of the duration, that has `wanted` of its jobs.

    A monotone cubic through the sums at both ends of the bucket (Fritsch and Butland 1984): its
    slopes are the harmonic means of the slopes of the buckets on each side.
    """
    start, end = _harmonic_mean(before, number), _harmonic_mean(number, after)
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        x = (low + high) / 2
        up_to = ((start + end - 2 * number) * x + 3 * number - 2 * start - end) * x * x + start * x
        low, high = (x, high) if up_to < wanted else (low, x)
    return high


def _harmonic_mean(one: int, other: int) -> float:
    return 2 * one * other / (one + other) if one and other else 0.0


_COUNTED: Final = {
    Count.REJECTED: REJECTED,
    Count.PROGRESS_UPDATES: PROGRESS_UPDATES,
    Count.HISTORY_FAILURES: HISTORY_FAILURES,
}


def count(what: Count, numbers: Numbers) -> None:
    """Count something about jobs that is not a change of state."""
    add(_COUNTED[what], numbers)


def _numbers(change: Change, keys: Iterable[UUID]) -> Numbers:
    jobs = change.jobs()
    return Counter([(jobs[key].queue, jobs[key].type) for key in keys])


def _completed(change: Change) -> None:
    found, ran = change.jobs(), change.known.seconds
    completed = []
    for key in change.before:
        job, seconds = found[key], ran.get(key)
        if seconds is None:
            seconds = _ran(job)
        completed.append((job.queue, job.type, 1, _waited(job), seconds))
    note_all(COMPLETED, completed)
    flush_if_due()


def _waited(job: Any) -> float | None:
    if job.started_at is None or job.enqueued_at is None:
        return None
    return elapsed(job.enqueued_at, job.started_at).total_seconds()


def _ran(job: Any) -> float | None:
    if job.started_at is None or job.finished_at is None:
        return None
    return elapsed(job.started_at, job.finished_at).total_seconds()


def _failed(change: Change) -> None:
    # A job that a worker cannot run is postponed, and has not failed.
    if change.known.spends:
        add(FAILED, _numbers(change, change.before))
        if State.DISCARDED in change.after.values():
            _add_discarded(change)


def _lapsed(change: Change) -> None:
    if change.known.spends:
        numbers = _numbers(change, change.before)
        add(FAILED, numbers)
        add(LOST, numbers)
        _add_discarded(change)


def _add_discarded(change: Change) -> None:
    ended = [key for key, state in change.after.items() if state is State.DISCARDED]
    add(DISCARDED, _numbers(change, ended))


def _dropped(change: Change) -> None:
    # A full queue drops jobs to admit others; a limit by key discards jobs of its own.
    by_queue = change.known.reason == "dropped"
    what = DROPPED if by_queue else DISCARDED
    add(what, _numbers(change, change.before))


#: The function that counts the changes of each trigger.
CHANGED: Final[Mapping[Trigger, Callable[[Change], None]]] = {
    Trigger.ACK: _completed,
    Trigger.FAIL: _failed,
    Trigger.LAPSE: _lapsed,
    Trigger.EXPIRE: _add_discarded,
    Trigger.DELETE_QUEUE: _add_discarded,
    Trigger.DROP: _dropped,
}

"""Findings about types whose runs take much longer than yesterday."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from statistics import median
from typing import Any, Final

from django.utils import timezone

from django_ojs.extensions.statistics.models import Rollup
from django_ojs.extensions.statistics.rollup_queries import MINUTE, bucket_sums, minute_of
from django_ojs.extensions.statistics.rollups import BUCKETS, percentile
from django_ojs.finding import AdminPage, Finding
from django_ojs.formatting import duration, number_of
from django_ojs.models import Job
from django_ojs.spec.states import State
from django_ojs.storage import database, raw_queries

#: Types are compared over the last minutes with the hour around this time yesterday, if they had
#: enough runs in both.
MINUTES: Final = 5
FEWEST_RUNS: Final = 10
_DAY: Final = timedelta(days=1)
_HALF_AN_HOUR: Final = timedelta(minutes=30)

#: A type is slow if its runs take this many times as long as yesterday. A busy machine may slow
#: runs that are shorter than these seconds.
TIMES: Final = 3.0
SHORTEST: Final = 0.5

#: The running jobs that are read, and the types that are compared with yesterday.
_MOST_RUNNING: Final = 1_000
_MOST_TYPES: Final = 20

_Key = tuple[str, str]
_Histogram = Sequence[int]


def condition() -> str:
    """Return the SQL condition that jobs run now, or did in the last minutes."""
    runs = raw_queries.condition(Job, f"state = '{State.ACTIVE.value}'")
    start = database.dialect().ago(MINUTES * 60)
    return f"({runs} OR {raw_queries.condition(Rollup, f'minute >= {start} AND completed > 0')})"


def found() -> list[Finding]:
    """Find the types that run, and take much longer than at this time yesterday."""
    now = timezone.now()
    start, yesterday = minute_of(now), minute_of(now - _DAY)
    running = _running(now)
    lately = _histograms(since=start - MINUTE * (MINUTES - 1), until=start + MINUTE)
    took = {key: _p50(histogram) for key, histogram in lately.items()}
    longest = {key: max(took.get(key, 0.0), _median(running[key])) for key in {*took, *running}}
    long = sorted((-most, key) for key, most in longest.items() if most >= SHORTEST)
    keys = [key for _, key in long[:_MOST_TYPES]]
    if not keys:
        return []
    before = _histograms(
        since=yesterday - _HALF_AN_HOUR,
        until=yesterday + _HALF_AN_HOUR,
        type__in=sorted({type for _, type in keys}),
    )
    return [
        finding
        for key in keys
        if (finding := _of(key, took.get(key, 0.0), running[key], before.get(key, ()))) is not None
    ]


def _of(key: _Key, took: float, running: Sequence[float], before: _Histogram) -> Finding | None:
    queue, type = key
    if not (usual := _p50(before)):
        return None
    # Of the jobs that run at a moment, long ones are a larger part than of all runs.
    by_time = [round(number * 0.75 * 2**index) for index, number in enumerate(before)]
    bound = max(SHORTEST, TIMES * (percentile(by_time, 0.95) or 0.0))
    if took >= max(SHORTEST, TIMES * usual):
        how = f"half of its runs took {duration(took)} or more in the last {MINUTES} minutes"
    elif _median(running) >= bound:
        how = f"half of its running jobs have run for {duration(bound)} or more"
    else:
        return None
    number = len(running)
    return Finding(
        kind="type_slow",
        queue=queue,
        type=type,
        text=f"{type} is slow in {queue}: {how}; yesterday at this time half took "
        f"{duration(usual)} or less. It holds {number_of(number, 'slot')}.",
        why="Its jobs hold their slots for longer, and others wait for these.",
        cure="See what its handler waits for, such as a service, a lock or a query. If a deploy "
        "made it slow, take it back.",
        command=f"ojs jobs type:{type} state:active",
        jobs=number,
        pages=(
            AdminPage(model=Job, jobs={"queue": queue, "type": type, "states": (State.ACTIVE,)}),
        ),
    )


def _p50(histogram: _Histogram) -> float:
    """Return the seconds that half of the runs took at most; 0 for too few runs."""
    return (percentile(histogram, 0.5) or 0.0) if sum(histogram) >= FEWEST_RUNS else 0.0


def _median(seconds: Sequence[float]) -> float:
    return median(seconds) if seconds else 0.0


def _running(now: datetime) -> defaultdict[_Key, list[float]]:
    """Return for how many seconds the jobs of each queue and type have run so far."""
    jobs = Job.primary.filter(state=State.ACTIVE, started_at__isnull=False)
    found: defaultdict[_Key, list[float]] = defaultdict(list)
    for queue, type, at in jobs.values_list("queue", "type", "started_at")[:_MOST_RUNNING]:
        if at is not None:
            found[queue, type].append((now - at).total_seconds())
    return found


def _histograms(*, since: datetime, until: datetime, **which: object) -> dict[_Key, list[int]]:
    """Return how long the runs took that ended in this time, by queue and type."""
    rows = Rollup.primary.filter(minute__gte=since, minute__lt=until, **which)
    sums: Iterable[Any] = rows.values("queue", "type").annotate(**bucket_sums("ran")).order_by()
    return {
        (row["queue"], row["type"]): [row[f"ran_{n}"] or 0 for n in range(BUCKETS)] for row in sums
    }

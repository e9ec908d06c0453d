"""Findings about types whose runs take much longer than yesterday."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from statistics import median
from typing import Any, Final

from django.db.models import BooleanField, Exists, ExpressionWrapper, OuterRef, Q
from django.utils import timezone

from django_ojs.extensions.statistics.models import Rollup
from django_ojs.extensions.statistics.rollup_queries import MINUTE, BucketSums, minute_of
from django_ojs.extensions.statistics.rollups import percentile
from django_ojs.finding import AdminPage, Finding
from django_ojs.formatting import duration, number_of
from django_ojs.models import Job
from django_ojs.spec.states import State
from django_ojs.storage import raw_queries

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
    """Return the SQL condition that a job runs: only types that run are found."""
    return raw_queries.condition(Job, f"state = '{State.ACTIVE.value}'")


def found() -> list[Finding]:
    """Find the types that run, and take much longer than at this time yesterday."""
    running = _running()
    # At nearly any moment, a slow type has a run that has run for half of SHORTEST.
    long = [key for key, seconds in running.items() if max(seconds) >= SHORTEST / 2]
    long = sorted(long, key=lambda key: -sum(running[key]))[:_MOST_TYPES]
    if not long:
        return []
    took = _histograms({type for _, type in long})
    findings = [
        _of(key, running[key], took.get((*key, True), ()), took.get((*key, False), ()))
        for key in long
    ]
    return [each for each in findings if each is not None]


def _of(
    key: _Key, running: Sequence[float], lately: _Histogram, before: _Histogram
) -> Finding | None:
    queue, type = key
    took, usual = _p50(lately), _p50(before)
    if not usual:
        return None
    # Long runs are more frequent among running jobs than among all runs: weight runs by duration.
    by_time = [round(number * 0.75 * 2**index) for index, number in enumerate(before)]
    bound = max(SHORTEST, TIMES * (percentile(by_time, 0.95) or 0.0))
    if took >= max(SHORTEST, TIMES * usual):
        how = f"half of its runs took {duration(took)} or more in the last {MINUTES} minutes"
    elif median(running) >= bound:
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
        "made it slow, roll it back.",
        command=f"ojs jobs type:{type} state:active",
        jobs=number,
        pages=(
            AdminPage(model=Job, jobs={"queue": queue, "type": type, "states": (State.ACTIVE,)}),
        ),
    )


def _p50(histogram: _Histogram) -> float:
    """Return the seconds that half of the runs took at most; 0 for too few runs."""
    return (percentile(histogram, 0.5) or 0.0) if sum(histogram) >= FEWEST_RUNS else 0.0


def _running() -> Mapping[_Key, list[float]]:
    """Return for how many seconds the jobs have run so far, of types that also ran yesterday."""
    now = timezone.now()
    before = Rollup.primary.filter(_was_then(now), type=OuterRef("type"))
    jobs = Job.primary.filter(Exists(before), state=State.ACTIVE, started_at__isnull=False)
    found: defaultdict[_Key, list[float]] = defaultdict(list)
    for queue, type, at in jobs.values_list("queue", "type", "started_at")[:_MOST_RUNNING]:
        if at is not None:
            found[queue, type].append((now - at).total_seconds())
    return found


def _was_then(now: datetime) -> Q:
    """Return the condition for the minutes around this time yesterday."""
    yesterday = minute_of(now - _DAY)
    return Q(minute__gte=yesterday - _HALF_AN_HOUR, minute__lt=yesterday + _HALF_AN_HOUR)


def _histograms(types: Collection[str]) -> dict[tuple[str, str, bool], list[int]]:
    """Return how long the runs of these types took, by queue and type: lately, and yesterday."""
    now = timezone.now()
    is_lately = Q(minute__gte=minute_of(now) - MINUTE * (MINUTES - 1))
    rows: Iterable[Any] = (
        Rollup.primary.filter(is_lately | _was_then(now), type__in=sorted(types))
        .values("queue", "type", lately=ExpressionWrapper(is_lately, BooleanField()))
        .annotate(took=BucketSums("ran"))
        .order_by()
    )
    return {(row["queue"], row["type"], bool(row["lately"])): row["took"] for row in rows}

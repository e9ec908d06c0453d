"""What is read for the findings about the health of the system, besides the queues.

Each is some bounded range of an index, and of the last moments: no job is counted in the whole
table.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID

from django.db.models import Count, F, Q, Sum
from django.db.models.functions import Now
from django.utils import timezone

from django_ojs.conf import settings
from django_ojs.extension import Problem
from django_ojs.extensions.limits import key_limits, limit_key_use
from django_ojs.extensions.limits.limit_key_use import KeyStatus
from django_ojs.extensions.limits.models import LimitKey
from django_ojs.extensions.statistics import rollup_queries
from django_ojs.extensions.statistics.rollup_queries import TypeFigures
from django_ojs.hooks import registry
from django_ojs.models import Job
from django_ojs.models.attempt import AttemptOutcome
from django_ojs.reports import ended_workers
from django_ojs.spec.failure import UNKNOWN_JOB_TYPE
from django_ojs.spec.states import State
from django_ojs.storage import database

#: Dead letters and others are counted up to this.
MOST: Final = 10_000

#: Shorter pauses of limit keys are none; of so many it is read how many jobs wait, up to a number,
#: and so many are named.
SHORT_PAUSE: Final = timedelta(minutes=1)
MOST_PAUSED: Final = 50
MOST_WAITING: Final = 1_000
MOST_NAMED: Final = 5

#: How far back workers that died are found, in the latest unsuccessful runs.
LATELY: Final = timedelta(hours=1)
#: For how long the last failure of an extension is shown.
FAILURES_SHOWN: Final = timedelta(hours=1)
MOST_LOST: Final = 1_000
#: Jobs that are due next and are read to find those of unknown types.
MOST_DUE: Final = 2_000
#: Failure rates are of these minutes.
FAILURE_MINUTES: Final = 15
MOST_TYPES: Final = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class LostWorkers:
    """Workers that died, or stopped reporting, with the number of jobs that each had.

    `job` and `type` are those that all of them had in common.
    """

    jobs_of: Counter[str]
    job: UUID | None = None
    type: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RestrictedKeys:
    """Limit keys, up to `MOST`: how many dropped how many jobs lately, and which are paused.

    `paused` are those with the most waiting jobs, `more_paused` is how many others there are.
    """

    dropped_jobs: int = 0
    dropping_keys: int = 0
    paused: Sequence[KeyStatus] = ()
    more_paused: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldBack:
    """A type of which jobs were claimed by workers that have no handler for it."""

    type: str
    queue: str
    jobs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Observations:
    """What is read for the findings, besides the queues."""

    fresh_dead: int = 0
    lost: LostWorkers | None = None
    held_back: Sequence[HeldBack] = ()
    failing: Sequence[TypeFigures] = ()
    limit_keys: RestrictedKeys = RestrictedKeys()
    problems: Sequence[Problem] = ()


def observe() -> Observations:
    """Read what happened lately: some bounded ranges of indexes."""
    return Observations(
        fresh_dead=new_dead_letters(),
        lost=lost_workers(),
        held_back=held_back(),
        failing=rollup_queries.failing(minutes=FAILURE_MINUTES, limit=MOST_TYPES),
        limit_keys=restricted_keys(),
        problems=[*failed_extensions(), *registry.brought("problems")],
    )


def failed_extensions() -> list[Problem]:
    """Return what extensions failed to do lately in this process: of others, their logs tell."""
    since = timezone.now() - FAILURES_SHOWN
    return [
        Problem(
            found=f"The extension {name} {failure.what} ({failure.error}).",
            why="What it does for these jobs or this page is missing.",
            cure="The log has the traceback. Correct the extension, or take it out.",
            since=failure.at,
        )
        for name, failure in sorted(registry.failures.items())
        if failure.at >= since
    ]


def new_dead_letters() -> int:
    """Return how many jobs became dead letters in the last hour, up to one more than `MOST`."""
    fresh = Job.primary.filter(dead_letter=True, finished_at__gt=Now() - timedelta(hours=1))
    return fresh.order_by()[: MOST + 1].count()


def restricted_keys() -> RestrictedKeys:
    """Return the limit keys with drops in the last hour, and those that are paused for long."""
    drops = Q(dropped_at__gt=Now() - key_limits.DROPPED_WITHIN)
    # A handler whose service rejects calls for a moment pauses its key as it should.
    is_paused = Q(paused_until__gt=Now(), paused_until__gte=F("paused_at") + SHORT_PAUSE)
    found = (
        LimitKey.primary.filter(drops | is_paused)
        .order_by()[:MOST]
        .aggregate(
            dropped_jobs=Sum("dropped", filter=drops, default=0),
            dropping_keys=Count("pk", filter=drops),
            paused_keys=Count("pk", filter=is_paused),
        )
    )
    number, paused = found.pop("paused_keys"), []
    if number:
        longest = LimitKey.primary.filter(is_paused).order_by("-paused_until", "pk")
        keys = list(longest.values_list("pk", flat=True)[:MOST_PAUSED])
        statuses = limit_key_use.status_of(keys, most=MOST_WAITING + 1)
        paused = sorted(
            (status for status in statuses if status.waiting), key=lambda status: -status.waiting
        )
        number += len(paused) - len(keys)
    return RestrictedKeys(
        **found,
        paused=paused[:MOST_NAMED],
        more_paused=number - len(paused[:MOST_NAMED]),
    )


def oldest_transaction() -> timedelta | None:
    """Return how long the oldest other transaction of this database has been open."""
    return database.dialect().oldest_transaction(database.connection())


def lost_workers() -> LostWorkers | None:
    """Return the workers whose jobs were taken back in the last hour, of the latest runs."""
    runs = ended_workers.latest_runs().filter(
        outcome__in=(AttemptOutcome.LOST, AttemptOutcome.LAPSED),
        finished_at__gt=Now() - LATELY,
    )
    lost = runs.order_by("-pk").values_list("worker_id", "job_id", "job__type")[:MOST_LOST]
    jobs: dict[str, set[UUID]] = {}
    types: dict[str, set[str]] = {}
    number: Counter[str] = Counter()
    for worker_id, job, type in lost:
        worker = worker_id or ""
        number[worker] += 1
        jobs.setdefault(worker, set()).add(job)
        types.setdefault(worker, set()).add(type)
    if not number:
        return None
    same_jobs, same_types = set.intersection(*jobs.values()), set.intersection(*types.values())
    return LostWorkers(
        jobs_of=number,
        job=same_jobs.pop() if len(same_jobs) == 1 else None,
        type=same_types.pop() if len(same_types) == 1 else None,
    )


def held_back() -> list[HeldBack]:
    """Return the types that no handler knows: a worker postpones such a job for a while.

    Of the jobs that are due next; so a type is found when a worker meets it, and no job is counted
    in the whole table.
    """
    due = Job.primary.filter(
        state__in=(State.SCHEDULED, State.RETRYABLE),
        due_at__lte=Now() + settings().unknown_type_delay,
    )
    found: Counter[tuple[str, str]] = Counter()
    for type, queue, error_type in due.order_by("due_at", "pk").values_list(
        "type", "queue", "error__type"
    )[:MOST_DUE]:
        if error_type == UNKNOWN_JOB_TYPE:
            found[type, queue] += 1
    return [
        HeldBack(type=type, queue=queue, jobs=jobs)
        for (type, queue), jobs in found.most_common(MOST_TYPES)
    ]

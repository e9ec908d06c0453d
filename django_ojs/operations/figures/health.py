"""Findings about the health of the system, worst first, without counting jobs.

Each comes from what is stored about the last moments, such as the heartbeats of the workers, and
not from a mean over minutes: the overview of the admin and `manage.py ojs doctor` read the same.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal
from uuid import UUID

from django.db import Error, connections
from django.db.models import Count, F, Min, Q, Sum
from django.db.models.functions import Now
from django.utils import timezone

from django_ojs.conf import settings
from django_ojs.formatting import StrOrPromise
from django_ojs.models import Job, LimitKey, Webhook
from django_ojs.models.attempt import AttemptOutcome
from django_ojs.models.outbox import Delivery
from django_ojs.operations.access import key_expiry
from django_ojs.operations.access.key_expiry import KeyProblem
from django_ojs.operations.enqueue import outbox
from django_ojs.operations.figures.queue_overview import Level, OverviewRow
from django_ojs.operations.maintenance.mode import MaintenanceStatus
from django_ojs.operations.workers import ended
from django_ojs.spec.failure import UNKNOWN_JOB_TYPE
from django_ojs.spec.states import State
from django_ojs.storage import database, key_limits, key_use
from django_ojs.storage import outbox as stored_outbox
from django_ojs.storage.bounds import Load
from django_ojs.storage.figures import rollup_queries
from django_ojs.storage.figures.rollup_queries import TypeFigures
from django_ojs.storage.key_use import KeyStatus

#: Dead letters are counted up to this.
MOST: Final = 10_000

#: A transaction that is open this long keeps dead rows, which claims must skip, from vacuum.
OLD: Final = timedelta(minutes=15)
VERY_OLD: Final = timedelta(hours=1)

#: Shorter pauses of limit keys are none; of so many it is read how many jobs wait, up to a number,
#: and so many are named.
SHORT_PAUSE: Final = timedelta(minutes=1)
MOST_PAUSED: Final = 50
MOST_WAITING: Final = 1_000
MOST_NAMED: Final = 5

#: How far back workers that died are found, in the latest unsuccessful runs.
LATELY: Final = timedelta(hours=1)
MOST_LOST: Final = 1_000
#: A queue is found full at most so long after the first job that it rejected or dropped.
_FOUND_FULL_WITHIN: Final = timedelta(seconds=10)
#: Jobs that are due next and are read to find those of unknown types.
MOST_DUE: Final = 2_000
#: Failure rates are of these minutes, and of types with at least so many runs.
FAILURE_MINUTES: Final = 15
FEWEST_RUNS: Final = 10
MOST_TYPES: Final = 10

Kind = Literal[
    "maintenance",
    "full",
    "near",
    "rejected",
    "rejected_tenants",
    "unworked",
    "late",
    "stale",
    "lost",
    "unknown_type",
    "failing",
    "dead_letters",
    "limit_drops",
    "webhooks",
    "outbox",
    "transaction",
    "replica",
    "paused",
    "limit_key_paused",
    "limit_keys_paused",
    "key_expires",
    "key_rejected",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One problem; `number` and the other fields are the values of its sentence."""

    kind: Kind
    level: Level
    #: Where it is, if jobs are in several databases.
    database: str = ""
    queue: str | None = None
    type: str | None = None
    job: UUID | None = None
    limit_key: str | None = None
    number: int = 0
    of: int = 0
    #: Jobs that the queue rejected and dropped, since the beginning or in the last hour.
    rejected: int = 0
    dropped: int = 0
    share: float = 0.0
    capped: bool = False
    since: datetime | None = None
    until: datetime | None = None
    lasts: timedelta | None = None
    text: StrOrPromise = ""
    key: KeyProblem | None = None


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
class DisabledWebhooks:
    """Webhooks that are disabled because their deliveries failed, and since when the first is."""

    number: int = 0
    since: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RejectedInOutbox:
    """Jobs that the outbox of a database could not deliver, up to `MOST`, and since when."""

    #: Where it is not the database of the jobs.
    alias: str
    number: int
    since: datetime


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
    disabled_webhooks: DisabledWebhooks = DisabledWebhooks()
    rejected_in_outbox: Sequence[RejectedInOutbox] = ()


def observe() -> Observations:
    """Read what happened lately: some bounded ranges of indexes."""
    return Observations(
        fresh_dead=new_dead_letters(),
        lost=lost_workers(),
        held_back=held_back(),
        failing=rollup_queries.failing(minutes=FAILURE_MINUTES, limit=MOST_TYPES),
        limit_keys=restricted_keys(),
        disabled_webhooks=disabled_webhooks(),
        rejected_in_outbox=rejected_in_outbox(),
    )


def findings_of_type(type: str) -> list[Finding]:
    """Return the problems that are about a type."""
    observed = Observations(
        lost=lost_workers(),
        held_back=held_back(),
        failing=rollup_queries.failing(minutes=FAILURE_MINUTES, type=type),
    )
    return [found for found in _of_workers_and_types(observed) if found.type == type]


def findings_of_queue(row: OverviewRow, *, is_stopped: bool) -> list[Finding]:
    """Return the problems of a queue, worst first. `is_stopped`: by maintenance mode."""
    observed = Observations(
        held_back=held_back(),
        failing=rollup_queries.failing(minutes=FAILURE_MINUTES, limit=MOST_TYPES),
    )
    of_types = [found for found in _of_workers_and_types(observed) if found.queue == row.name]
    return worst_first([*_of(row, is_stopped=is_stopped), *of_types])


def new_dead_letters(within: timedelta = timedelta(hours=1)) -> int:
    """Return how many jobs became dead letters in this time, up to one more than `MOST`."""
    fresh = Job.primary.filter(dead_letter=True, finished_at__gt=Now() - within)
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
        statuses = key_use.status_of(keys, most=MOST_WAITING + 1)
        paused = sorted(
            (status for status in statuses if status.waiting), key=lambda status: -status.waiting
        )
        number += len(paused) - len(keys)
    return RestrictedKeys(
        **found,
        paused=paused[:MOST_NAMED],
        more_paused=number - len(paused[:MOST_NAMED]),
    )


def disabled_webhooks() -> DisabledWebhooks:
    """Return the webhooks that are disabled because of their failures. There are few webhooks."""
    disabled = Webhook.primary.filter(active=False, disabled_at__isnull=False)
    return DisabledWebhooks(**disabled.aggregate(number=Count("pk"), since=Min("disabled_at")))


def rejected_in_outbox() -> list[RejectedInOutbox]:
    """Return what the outbox of each database has that was rejected."""
    found = []
    for alias in outbox.aliases():
        is_here = alias == database.primary_alias()
        rows = stored_outbox.entries(database.alias() if is_here else alias)
        rejected = rows.filter(state=Delivery.REJECTED).order_by("created_at").values("created_at")
        try:
            figures = rejected[: MOST + 1].aggregate(number=Count("*"), since=Min("created_at"))
        except Error:
            if is_here:
                raise
            connections[alias].close()  # A database without jobs does not respond.
            continue
        if figures["number"]:
            found.append(RejectedInOutbox(alias="" if is_here else alias, **figures))
    return found


def oldest_transaction() -> timedelta | None:
    """Return how long the oldest other transaction of this database has been open."""
    return database.dialect().oldest_transaction(database.connection())


def lost_workers() -> LostWorkers | None:
    """Return the workers whose jobs were taken back in the last hour, of the latest runs."""
    runs = ended.latest_runs().filter(
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


def findings(
    rows: Sequence[OverviewRow],
    observed: Observations,
    *,
    maintenance: MaintenanceStatus | None,
    stale: int,
    transaction: timedelta | None,
    replica: StrOrPromise = "",
    keys: Sequence[KeyProblem] = (),
) -> list[Finding]:
    """Return the problems, worst first. `replica`: why pages cannot be read from it."""
    found = []
    is_stopped = maintenance is not None and maintenance.enabled
    if maintenance is not None and is_stopped:
        found.append(
            Finding(
                kind="maintenance",
                level=Level.BAD,
                since=maintenance.enabled_at,
                text=maintenance.reason or "",
            )
        )
    for row in rows:
        found += _of(row, is_stopped=is_stopped)
    if stale:
        found.append(Finding(kind="stale", level=Level.BAD, number=stale))
    found += _of_workers_and_types(observed)
    if observed.fresh_dead:
        found.append(
            Finding(
                kind="dead_letters",
                level=Level.FAIR,
                number=min(observed.fresh_dead, MOST),
                capped=observed.fresh_dead > MOST,
            )
        )
    found += _of_limit_keys(observed.limit_keys)
    if observed.disabled_webhooks.number:
        found.append(
            Finding(
                kind="webhooks",
                level=Level.FAIR,
                number=observed.disabled_webhooks.number,
                since=observed.disabled_webhooks.since,
            )
        )
    found += [
        Finding(
            kind="outbox",
            level=Level.FAIR,
            number=min(each.number, MOST),
            capped=each.number > MOST,
            since=each.since,
            text=each.alias,
        )
        for each in observed.rejected_in_outbox
    ]
    if transaction is not None and transaction >= OLD:
        level = Level.BAD if transaction >= VERY_OLD else Level.FAIR
        found.append(Finding(kind="transaction", level=level, lasts=transaction))
    if replica:
        found.append(Finding(kind="replica", level=Level.FAIR, text=replica))
    found += [_of_key(problem) for problem in keys]
    return worst_first(found)


def worst_first(found: Sequence[Finding]) -> list[Finding]:
    """Return findings in the order of a page."""
    return sorted(found, key=lambda finding: finding.level is not Level.BAD)


def _of_limit_keys(keys: RestrictedKeys) -> list[Finding]:
    found = []
    if keys.dropping_keys:
        found.append(
            Finding(
                kind="limit_drops",
                level=Level.FAIR,
                number=keys.dropped_jobs,
                of=keys.dropping_keys,
            )
        )
    for status in keys.paused:
        if status.row is not None:
            found.append(
                Finding(
                    kind="limit_key_paused",
                    level=Level.FAIR,
                    limit_key=status.key,
                    number=min(status.waiting, MOST_WAITING),
                    capped=status.waiting > MOST_WAITING,
                    since=status.row.paused_at,
                    until=status.row.paused_until,
                )
            )
    if keys.more_paused > 0:
        found.append(Finding(kind="limit_keys_paused", level=Level.FAIR, number=keys.more_paused))
    return found


def _of_key(problem: KeyProblem) -> Finding:
    text = key_expiry.sentence(problem)
    if problem.rejected_at is not None:  # The requests of a program fail now.
        return Finding(kind="key_rejected", level=Level.BAD, key=problem, text=text)
    return Finding(kind="key_expires", level=Level.FAIR, key=problem, text=text)


def _of_workers_and_types(observed: Observations) -> list[Finding]:
    found = []
    if observed.lost is not None:
        found.append(
            Finding(
                kind="lost",
                level=Level.BAD,
                number=len(observed.lost.jobs_of),
                of=observed.lost.jobs_of.total(),
                job=observed.lost.job,
                type=observed.lost.type,
            )
        )
    for each in observed.held_back:
        found.append(
            Finding(
                kind="unknown_type",
                level=Level.BAD,
                type=each.type,
                queue=each.queue,
                number=each.jobs,
            )
        )
    limit = settings().warn_failure_rate
    for figures in observed.failing:
        runs = figures.failed + figures.completed
        if runs >= FEWEST_RUNS and figures.share >= limit:
            found.append(
                Finding(
                    kind="failing",
                    level=Level.FAIR,
                    type=figures.type,
                    queue=figures.queue,
                    number=figures.failed,
                    of=runs,
                    share=figures.share,
                )
            )
    return found


def _of(row: OverviewRow, *, is_stopped: bool) -> list[Finding]:
    found = []
    bound = row.bound
    rejected = _lately(row.flow.rejected, row.level_since)
    dropped = _lately(row.flow.dropped, row.level_since)
    if row.level is not Level.GOOD:
        full = row.level is Level.BAD
        depth, most = Load(jobs=row.depth, size=row.size or 0).nearest(bound)
        found.append(
            Finding(
                kind="full" if full else "near",
                level=row.level,
                queue=row.name,
                number=depth,
                of=most,
                rejected=rejected,
                dropped=dropped,
                since=row.level_since,
                text=bound.strategy,
            )
        )
    elif rejected or dropped:
        # Without a bound of its own, the bounds of its tenants rejected them.
        of_tenants = row.status.config.tenant_limits is not None and not row.bounded
        found.append(
            Finding(
                kind="rejected_tenants" if of_tenants else "rejected",
                level=Level.FAIR,
                queue=row.name,
                rejected=rejected,
                dropped=dropped,
            )
        )
    if row.unworked:
        found.append(
            Finding(
                kind="unworked",
                level=Level.BAD,
                queue=row.name,
                number=row.available,
                since=row.oldest,
                text=_worker_arguments(row.name),
            )
        )
    elif row.oldest is not None and not row.status.paused and not is_stopped:
        waits = timezone.now() - row.oldest
        if row.available and waits >= settings().warn_oldest_available:
            found.append(
                Finding(
                    kind="late",
                    level=Level.FAIR,
                    queue=row.name,
                    number=row.available,
                    since=row.oldest,
                )
            )
    if row.status.paused and row.depth:
        found.append(
            Finding(
                kind="paused",
                level=Level.FAIR,
                queue=row.name,
                number=row.depth,
                since=row.status.paused_at,
            )
        )
    return found


def _worker_arguments(queue: str) -> str:
    """Return the arguments of a worker that gets jobs of a queue."""
    pool = settings().pool_of_queue.get(queue)
    return f"--queues {queue}" if pool is None else f"--pool {pool}"


def _lately(minutes: Sequence[int], since: datetime | None) -> int:
    """Return the sum of the minutes since the begin of an episode, or of all of them if it is
    None or earlier."""
    if since is None:
        return sum(minutes)
    first = since - _FOUND_FULL_WITHIN
    number = timezone.now().timestamp() // 60 - first.timestamp() // 60 + 1
    return sum(minutes[-int(min(len(minutes), max(1, number))) :])

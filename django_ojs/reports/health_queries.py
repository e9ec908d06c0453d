"""What is read for the findings about the health of the system, besides the queues.

Each query reads a bounded range of an index, about the last moments. None counts the whole table of
jobs.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias
from uuid import UUID

from django.db.models import Case, Exists, F, IntegerField, OuterRef, When
from django.db.models.functions import Now
from django.utils import timezone

from django_ojs.conf import settings
from django_ojs.extension import Extension
from django_ojs.finding import Finding
from django_ojs.hooks import brought_by, contained, registry
from django_ojs.models import ApiKey, Attempt, Job, Lease, Queue, Worker
from django_ojs.models.attempt import AttemptOutcome
from django_ojs.operations import expiry, promotion
from django_ojs.operations.maintenance import lease
from django_ojs.reports import ended_workers, queue_overview
from django_ojs.spec.failure import UNKNOWN_JOB_TYPE
from django_ojs.spec.states import State
from django_ojs.storage import database, raw_queries
from django_ojs.storage.dialects.base import ALL_QUEUES
from django_ojs.storage.dialects.expressions import Milliseconds
from django_ojs.storage.dialects.server import OldestTransaction

#: Dead letters and other jobs are counted up to this number.
MOST: Final = 10_000

#: How long workers that died are reported, if their runs are among the latest unsuccessful ones.
LATELY: Final = timedelta(hours=1)
#: For how long the last failure of an extension is shown.
FAILURES_SHOWN: Final = timedelta(hours=1)
MOST_LOST: Final = 1_000
MOST_TYPES: Final = 10
#: A transaction that is open this long keeps dead rows, which claims must skip, from vacuum.
OLD: Final = timedelta(minutes=15)
#: How long maintenance may be late before it is a finding.
LATE: Final = timedelta(minutes=1)
#: If the maintenance was last done this long ago, no process does it.
LATE_MAINTENANCE: Final = timedelta(seconds=12)

#: A worker, a job and its type, when the job was taken back, and whether the worker is alive.
_LostRun: TypeAlias = tuple[str | None, UUID, str, datetime, bool]


@dataclass(frozen=True, kw_only=True, slots=True)
class LostWorkers:
    """Workers whose jobs were taken back, with the number of jobs that each had.

    `job` and `type` are what most of them had in common, and `having` says how many of them.
    `silent` is the longest time for which live workers did not answer, if it is known.
    """

    jobs_of: Counter[str]
    first: datetime
    job: UUID | None = None
    type: str | None = None
    having: int = 0
    silent: timedelta | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TakenBack:
    """The workers whose jobs were taken back lately: those that died, and those that are alive."""

    died: LostWorkers | None = None
    live: LostWorkers | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldBack:
    """A type whose jobs were claimed by workers without a handler for it."""

    type: str
    queue: str
    jobs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Observations:
    """What is read for the findings, besides the queues."""

    fresh_dead: int = 0
    taken_back: TakenBack = TakenBack()
    held_back: Sequence[HeldBack] = ()
    #: Jobs that are due and not yet available, by queue, up to `MOST` of all queues.
    due: Mapping[str, int] = field(default_factory=dict)
    due_is_capped: bool = False
    #: Whether jobs became due, or expired, over a minute ago, and still wait.
    is_behind: bool = False
    #: Whether a process does the maintenance.
    is_maintained: bool = True
    #: What extensions have found, and what the others have looked for.
    found: Sequence[Finding] = ()
    absent: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Signs:
    """What may be wrong.

    One statement reads these signs, and only those found cost further queries.
    """

    #: Whether jobs are due; whether some became due or expired over a minute ago, and still wait.
    due: bool = True
    is_behind: bool = False
    #: Whether a process does the maintenance.
    is_maintained: bool = True
    dead_letters: bool = True
    #: Whether a run failed, or was taken back, in the last hour.
    failed_runs: bool = True
    held_back: bool = True
    maintenance_mode: bool = True
    full_queues: bool = True
    #: Whether jobs run, or ended lately, that were claimed without the id of a worker.
    nameless_claims: bool = True
    old_transaction: bool = True
    keys: bool = False
    #: The extensions that may have found something.
    extensions: Sequence[Extension] = ()


def signs(*, with_keys: bool = True) -> Signs:
    """Read the signs of what may be wrong; each is found at the end of an index.

    `with_keys` includes signs about API keys, which the role of a worker may not read.
    """
    ago = database.dialect().ago
    hour, delay = ago(LATELY.total_seconds()), settings().unknown_type_delay
    attempts = Attempt._meta.db_table
    asked = {
        "due": promotion.due_condition(),
        "late": promotion.due_condition(LATE),
        "expired": expiry.expired_condition(LATE),
        "is_maintained": raw_queries.condition(
            Lease,
            f"name = '{lease.MAINTENANCE}' AND until > "
            f"{ago((LATE_MAINTENANCE - lease.TERM).total_seconds())}",
        ),
        "dead_letters": raw_queries.condition(Job, f"dead_letter AND finished_at > {hour}"),
        "failed_runs": (
            f"COALESCE((SELECT finished_at FROM {attempts} ORDER BY id DESC LIMIT 1) > {hour}, "
            "1 = 0)"
        ),
        "held_back": promotion.due_condition(-delay),
        "maintenance_mode": raw_queries.condition(Queue, f"name = '{ALL_QUEUES}'"),
        "full_queues": raw_queries.condition(Queue, "near_full_at IS NOT NULL"),
        "nameless_claims": queue_overview.nameless_condition(),
        "old_transaction": database.dialect().open_since.format(ago(OLD.total_seconds())),
    }
    if with_keys:
        in_use = f"expires_at IS NOT NULL OR rejected_at > {hour}"
        asked["keys"] = raw_queries.condition(ApiKey, in_use)
    extensions = {
        each.number: contained(each.name, "failed to say what it looks for", each.may_find, "")
        for each in registry.extensions()
    }
    asked_of = {each: condition for each, condition in extensions.items() if condition}
    found = raw_queries.which_hold([*asked.values(), *asked_of.values()])
    held: dict[Any, bool] = dict(zip([*asked, *asked_of], found, strict=True))
    late, expired = held.pop("late"), held.pop("expired")
    return Signs(
        **{name: held[name] for name in asked if name in held},
        is_behind=late or expired,
        extensions=[each for each in registry.extensions() if held.get(each.number, True)],
    )


def observe(seen: Signs) -> Observations:
    """Read what happened lately, from some bounded ranges of indexes."""
    due, types = next_jobs() if seen.due or seen.held_back else (Counter[str](), ())
    return Observations(
        fresh_dead=new_dead_letters() if seen.dead_letters else 0,
        taken_back=taken_back() if seen.failed_runs else TakenBack(),
        held_back=types,
        due=due,
        due_is_capped=due.total() >= MOST,
        is_behind=seen.is_behind,
        is_maintained=seen.is_maintained,
        found=[*failed_extensions(), *found_by_extensions(seen)],
        absent=[
            each.looks_for
            for each in registry.extensions()
            if each.looks_for and each not in seen.extensions
        ],
    )


def maintained() -> timedelta | None:
    """Return how long ago a process did the maintenance, or None if no process has this task."""
    held = Lease.primary.filter(pk=lease.MAINTENANCE)
    # The clock of the database has set the end of the lease.
    left = held.values_list(F("until") - Now(), flat=True).first()
    return None if left is None else max(lease.TERM - left, timedelta(0))


def found_by_extensions(seen: Signs) -> Iterator[Finding]:
    """Return the findings of the extensions that may have found something."""
    for extension in seen.extensions:
        yield from brought_by(extension, "findings", of=Finding)


def failed_extensions() -> list[Finding]:
    """Return what extensions failed to do lately in this process; other processes log theirs."""
    since = timezone.now() - FAILURES_SHOWN
    return [
        Finding(
            kind="extension_failed",
            subject=name,
            text=f"The extension {name} {failure.what} ({failure.error}).",
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


def oldest_transaction() -> timedelta | None:
    """Return how long the oldest other transaction of this database has been open."""
    found = database.dialect().read(database.connection(), OldestTransaction)
    return found[0].age if found else None


def taken_back() -> TakenBack:
    """Return the workers whose jobs were taken back in the last hour, among the latest runs.

    Workers that send heartbeats are alive: they, the network or the database had stalled.
    """
    runs = ended_workers.latest_runs().filter(
        outcome__in=(AttemptOutcome.LOST, AttemptOutcome.LAPSED),
        finished_at__gt=Now() - LATELY,
    )
    beats = Worker.primary.filter(
        pk=OuterRef("worker_id"), seen_at__gt=Now() - Milliseconds(F("dead_after_ms"))
    )
    lost = (
        runs.annotate(lives=Exists(beats))
        .order_by("-pk")
        .values_list("worker_id", "job_id", "job__type", "finished_at", "lives")[:MOST_LOST]
    )
    found = list(lost)
    live = _lost([row for row in found if row[-1]])
    return TakenBack(
        died=_lost([row for row in found if not row[-1]]),
        live=live and replace(live, silent=_silent(found)),
    )


def _silent(runs: Sequence[_LostRun]) -> timedelta | None:
    """Return the longest time for which live workers did not answer.

    A worker was silent for some time before its jobs were taken back, and until its heartbeats were
    stored again.
    """
    first: dict[str, datetime] = {}
    for worker_id, _, _, finished_at, lives in runs:
        if lives and worker_id:
            first[worker_id] = min(first.get(worker_id, finished_at), finished_at)
    back = Worker.primary.filter(pk__in=first, steady_since__isnull=False)
    silences = [
        steady_since - first[key] + timedelta(milliseconds=dead_after_ms)
        for key, steady_since, dead_after_ms in back.values_list(
            "pk", "steady_since", "dead_after_ms"
        )
        if steady_since is not None and steady_since > first[key]
    ]
    return max(silences, default=None)


def _lost(runs: Sequence[_LostRun]) -> LostWorkers | None:
    if not runs:
        return None
    number: Counter[str] = Counter()
    by_job: defaultdict[UUID, set[str]] = defaultdict(set)
    by_type: defaultdict[str, set[str]] = defaultdict(set)
    type_of: dict[UUID, str] = {}
    for worker_id, job, type, _, _ in runs:
        worker = worker_id or ""
        number[worker] += 1
        by_job[job].add(worker)
        by_type[type].add(worker)
        type_of[job] = type
    job, workers = max(by_job.items(), key=lambda item: len(item[1]))
    type, of_type = max(by_type.items(), key=lambda item: len(item[1]))
    # A single worker shows a pattern only if it had one job, or only jobs of one type.
    is_job = len(workers) > 1 or len(by_job) == 1
    is_type = is_job or len(of_type) > max(1, len(number) // 2) or len(by_type) == 1
    return LostWorkers(
        jobs_of=number,
        first=min(finished_at for *_, finished_at, _ in runs),
        job=job if is_job else None,
        type=(type_of[job] if is_job else type) if is_type else None,
        having=len(workers) if is_job else len(of_type),
    )


def next_jobs() -> tuple[Counter[str], list[HeldBack]]:
    """Return how many jobs are due and not yet available, by queue, and the unknown types.

    The jobs that are due first are read, up to `MOST`. Workers without a handler for a job postpone
    it for a while, so an unknown type is found among them, and no query counts the whole table.
    """
    rows = Job.primary.filter(
        state__in=(State.SCHEDULED, State.RETRYABLE),
        due_at__lte=Now() + settings().unknown_type_delay,
    ).annotate(is_due=Case(When(due_at__lte=Now(), then=1), default=0, output_field=IntegerField()))
    due: Counter[str] = Counter()
    unknown: Counter[tuple[str, str]] = Counter()
    for is_due, type, queue, error_type in rows.order_by("due_at", "pk").values_list(
        "is_due", "type", "queue", "error__type"
    )[:MOST]:
        due[queue] += is_due
        if error_type == UNKNOWN_JOB_TYPE:
            unknown[type, queue] += 1
    return +due, [
        HeldBack(type=type, queue=queue, jobs=jobs)
        for (type, queue), jobs in unknown.most_common(MOST_TYPES)
    ]

"""Findings about the runs of job types."""

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from django.db.models.functions import Now
from django.utils import timezone

from django_ojs.conf import settings
from django_ojs.extensions.statistics import rollup_queries
from django_ojs.extensions.statistics.models import Rollup
from django_ojs.finding import AdminPage, Finding, Severity
from django_ojs.formatting import grouped
from django_ojs.models import Attempt, Job, Worker
from django_ojs.models.attempt import AttemptOutcome
from django_ojs.spec.states import State
from django_ojs.storage import database, raw_queries

#: Failure rates are taken over this many minutes, of types with at least this many runs.
MINUTES: Final = 15
FEWEST_RUNS: Final = 10
MOST_TYPES: Final = 20
#: This many failures in a row are a finding at once, and this many successes after the last failure
#: end it.
IN_A_ROW: Final = 10
#: A type counts as broken if at least this share of its runs failed.
BROKEN: Final = 0.9
#: How many of the latest unsuccessful runs, and of the latest successful ones, are read.
_MOST_RUNS: Final = 1_000

_Key = tuple[str, str]


@dataclass(slots=True)
class _Runs:
    """The latest runs of a type in a queue: when they failed, and when they succeeded."""

    failed: list[datetime] = field(default_factory=list)
    completed: list[datetime] = field(default_factory=list)
    error: str = ""
    #: The releases of the workers on which runs failed; "" for a worker of unknown release.
    releases: set[str] = field(default_factory=set)
    workers: set[str] = field(default_factory=set)

    def in_a_row(self) -> list[datetime]:
        """Return the latest failures, with no successful run between them."""
        last = max(self.failed, default=None)
        before = max((at for at in self.completed if last and at < last), default=None)
        return [at for at in self.failed if before is None or at > before]

    def since(self) -> int:
        """Return how many runs have succeeded since the last failure."""
        last = max(self.failed, default=None)
        return sum(last is not None and at > last for at in self.completed)


def condition() -> str:
    """Return the SQL condition that there is something to find."""
    start = database.dialect().ago(MINUTES * 60)
    newest = f"SELECT finished_at FROM {Attempt._meta.db_table} ORDER BY id DESC LIMIT 1"
    failed = raw_queries.condition(Rollup, f"minute >= {start} AND failed > lost")
    return f"(COALESCE(({newest}) > {start}, 1 = 0) OR {failed})"


def found() -> list[Finding]:
    """Find types with too many failed runs in the last minutes, or whose last runs all failed.

    A type that works again is only advice, which says since when.
    """
    latest = _latest()
    figures = {
        (each.type, each.queue): each
        for each in rollup_queries.failing(minutes=MINUTES, limit=MOST_TYPES)
    }
    results = []
    for key in dict.fromkeys([*figures, *latest]):
        runs, of_minutes = latest.get(key) or _Runs(), figures.get(key)
        row = len(runs.in_a_row())
        failed = max(row, of_minutes.failed if of_minutes else 0)
        total = failed + (of_minutes.completed if of_minutes else 0)
        share = failed / max(1, total)
        if row < IN_A_ROW and (total < FEWEST_RUNS or share < settings().warn_failure_rate):
            continue
        results.append(_finding(key, runs, failed=failed, total=total))
    return results


def _finding(key: _Key, runs: _Runs, *, failed: int, total: int) -> Finding:
    type, queue = key
    share, row, since = failed / total, runs.in_a_row(), runs.since()
    is_row = len(row) >= IN_A_ROW
    if is_row and not since:
        text = f"The last {grouped(len(row))} runs of {type} all failed in {queue}"
    elif is_row:
        text = f"{grouped(len(row))} runs of {type} in a row failed in {queue}"
    else:
        text = (
            f"{share:.0%} of the runs of {type} failed".replace("%", " %")
            + f" in the last {MINUTES} minutes: {grouped(failed)} of {grouped(total)} in {queue}"
        )
    if len(runs.releases) == 1 and (release := min(runs.releases)):
        text += f", on workers of the release {release}"
    if runs.error:
        text += f", {'the last' if is_row else 'most recently'} with {runs.error}"
    if since >= IN_A_ROW or (is_row and since):
        text += f"; none since {timezone.localtime(max(runs.failed)):%H:%M:%S}"
    if since >= IN_A_ROW:
        severity = Severity.ADVICE
    else:
        is_broken = (is_row and not since) or share >= BROKEN
        severity = Severity.CRITICAL if is_broken else Severity.WARNING
    which = {"queue": queue, "type": type, "states": (State.RETRYABLE, State.DISCARDED)}
    return Finding(
        kind="type_failing",
        severity=severity,
        queue=queue,
        type=type,
        text=f"{text}.",
        why="They are retried while they have attempts left, and become dead letters then.",
        cure="See their errors. If a deploy brought them, roll it back.",
        command=f"ojs jobs type:{type} state:retryable,discarded",
        jobs=failed,
        since=min(row) if is_row else None,
        pages=(AdminPage(model=Job, jobs=which),),
    )


def _latest() -> dict[_Key, _Runs]:
    """Return the latest runs of the types that failed often, newest first."""
    newest = Attempt.primary.order_by("-pk")[:_MOST_RUNS]
    found: defaultdict[_Key, _Runs] = defaultdict(_Runs)
    start = timezone.now() - timedelta(minutes=MINUTES)
    for type, queue, at, outcome, error, worker in newest.values_list(
        *("job__type", "job__queue", "finished_at", "outcome", "error", "worker_id")
    ):
        if at >= start and outcome in (AttemptOutcome.FAILED, AttemptOutcome.TIMEOUT):
            runs = found[type, queue]
            runs.failed.append(at)
            runs.error = runs.error or _name(error)
            runs.workers.add(worker or "")
    often = {key: runs for key, runs in found.items() if len(runs.failed) >= IN_A_ROW}
    if often:
        done = Job.primary.filter(
            state=State.COMPLETED,
            dead_letter=False,
            finished_at__gt=Now() - timedelta(minutes=MINUTES),
        ).order_by("-finished_at", "-pk")
        for type, queue, ended in done.values_list("type", "queue", "finished_at")[:_MOST_RUNS]:
            if (type, queue) in often and ended is not None:
                often[type, queue].completed.append(ended)
        workers = {worker for runs in often.values() for worker in runs.workers}
        release_of = dict(Worker.primary.filter(pk__in=workers).values_list("pk", "release"))
        for runs in often.values():
            runs.releases = {release_of.get(worker, "") for worker in runs.workers}
    return often


def _name(error: object) -> str:
    """Return the type of an error: the name of a class, and no data of a job."""
    type = error.get("type") if isinstance(error, dict) else None
    return type[:80] if isinstance(type, str) and type.isprintable() else ""

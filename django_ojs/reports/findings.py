"""Findings about the health of the system, worst first. None needs a count of all jobs.

Each comes from what is stored about the last moments, such as the heartbeats of the workers, and
not from a mean over minutes. The overview of the admin, `manage.py ojs doctor`, `GET /health` and
the metrics show the same. Extensions have findings of their own (`Extension.findings`).
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from django.utils import timezone

from django_ojs.conf import settings
from django_ojs.finding import AdminPage, Finding, Severity
from django_ojs.formatting import absolute_time, duration, grouped, number_of
from django_ojs.models import ApiKey, DeadLetterJob, Job, Overview, Queue, Worker
from django_ojs.operations.access import key_expiry
from django_ojs.operations.access.key_expiry import KeyProblem
from django_ojs.operations.maintenance.mode import MaintenanceStatus
from django_ojs.reports import health_queries
from django_ojs.reports.health_queries import HeldBack, LostWorkers, Observations, Signs, TakenBack
from django_ojs.reports.queue_overview import Level, Listeners, OverviewRow
from django_ojs.spec.states import TERMINAL, State
from django_ojs.storage.dialects.server import LockHolder

VERY_OLD: Final = timedelta(hours=1)

#: A queue counts as full within this time after the first job that it rejected or dropped.
_FOUND_FULL_WITHIN: Final = timedelta(seconds=10)

_WHEN_FULL: Final = {
    "reject": "Enqueues are rejected.",
    "block": "Enqueues wait for room, then fail.",
    "drop_oldest": "Its oldest jobs are dropped for new ones.",
}

#: The findings from which others follow: no worker runs, or nothing does the maintenance.
_OF_NO_WORKER: Final = frozenset({"no_worker"})
_OF_NO_MAINTENANCE: Final = frozenset({"no_worker", "no_maintenance", "maintenance"})


def of_system(
    rows: Sequence[OverviewRow],
    observed: Observations,
    *,
    maintenance: MaintenanceStatus | None,
    listening: Listeners | None,
    transaction: timedelta | None,
    keys: Sequence[KeyProblem] = (),
) -> list[Finding]:
    """Return all findings, worst first, including those that follow from others."""
    found: list[Finding] = []
    if is_stopped := maintenance is not None and maintenance.enabled:
        found.append(_maintenance(maintenance))
    if listening is not None:
        found += _of_workers(rows, observed, listening, is_stopped=is_stopped)
    for row in rows:
        found += _of_row(row, due=observed.due.get(row.name, 0), is_stopped=is_stopped)
    found += _of_taken_back(observed.taken_back)
    found += map(_unknown_type, observed.held_back)
    if observed.fresh_dead:
        found.append(_dead_letters(observed.fresh_dead))
    found += observed.found
    if transaction is not None and transaction >= health_queries.OLD:
        found.append(_transaction(transaction))
    found += map(_key, keys)
    return worst_first(found)


def of_type(type: str) -> list[Finding]:
    """Return what was found about a type."""
    seen = health_queries.signs(with_keys=False)
    found = [*_unknown_types(seen), *health_queries.found_by_extensions(seen)]
    if seen.failed_runs:
        found += _of_taken_back(health_queries.taken_back())
    return worst_first([each for each in found if each.type == type])


def of_queue(row: OverviewRow, *, is_stopped: bool) -> list[Finding]:
    """Return what was found about a queue, worst first.

    `is_stopped` is whether maintenance mode is on.
    """
    seen = health_queries.signs(with_keys=False)
    found = [*_unknown_types(seen), *health_queries.found_by_extensions(seen)]
    return worst_first(
        [
            *_of_row(row, due=0, is_stopped=is_stopped),
            *(each for each in found if each.queue == row.name),
        ]
    )


def worst_first(found: Sequence[Finding]) -> list[Finding]:
    """Return findings by their severity, then by how many jobs they hurt and how long."""
    order, now = list(Severity), timezone.now()

    def weight(each: Finding) -> float:
        lasts = (now - each.since).total_seconds() if each.since else 0.0
        return max(1, each.jobs) * max(1.0, lasts)

    return sorted(found, key=lambda each: (order.index(each.severity), -weight(each)))


def without_consequences(found: Sequence[Finding]) -> list[Finding]:
    """Leave out the findings that follow from other findings."""
    kinds = {each.kind for each in found if each.is_incident}
    return [each for each in found if not each.follows & kinds]


def by_kind(found: Sequence[Finding]) -> list[list[Finding]]:
    """Group findings by kind, in their order: those of one kind mostly have one cause."""
    kinds: dict[str, list[Finding]] = {}
    for finding in found:
        kinds.setdefault(finding.kind, []).append(finding)
    return list(kinds.values())


def _unknown_types(seen: Signs) -> list[Finding]:
    return list(map(_unknown_type, health_queries.next_jobs()[1])) if seen.held_back else []


def _maintenance(status: MaintenanceStatus) -> Finding:
    return Finding(
        kind="maintenance",
        severity=Severity.CRITICAL,
        text=f"Maintenance mode is on: {status.reason or 'no reason was given'}",
        why="Workers fetch no job of any queue.",
        cure="End it when its work is done.",
        since=status.enabled_at,
        pages=(
            AdminPage(
                model=Overview,
                key="1",
                action="end-maintenance",
                state=(("in_maintenance", True),),
            ),
        ),
    )


def _of_workers(
    rows: Sequence[OverviewRow],
    observed: Observations,
    listening: Listeners,
    *,
    is_stopped: bool,
) -> list[Finding]:
    found = []
    ready = Counter({row.name: row.available for row in rows if not row.status.paused})
    waiting = +(ready + Counter(observed.due))
    unfinished = sum(
        number
        for row in rows
        for state, number in row.status.counts.items()
        if state not in TERMINAL
    )
    if not listening.running and not listening.by_queue:
        number = waiting.total()
        some = f"at least {grouped(number)}" if observed.due_is_capped else grouped(number)
        found.append(
            Finding(
                kind="no_worker",
                severity=Severity.CRITICAL if unfinished else Severity.ADVICE,
                text=(
                    f"No worker is running: {some} {'job' if number == 1 else 'jobs'} of "
                    f"{number_of(len(waiting), 'queue')} {_be(number)} ready or due."
                    if waiting
                    else "No worker is running, and no job is ready or due."
                ),
                why="No job runs, none is retried, and no schedule enqueues its jobs.",
                cure="Start a worker, and see why the last one stopped.",
                command="ojs_worker",
                jobs=number,
                pages=(AdminPage(model=Worker),),
            )
        )
    elif unfinished and not observed.is_maintained and listening.maintaining == 0:
        found.append(
            Finding(
                kind="no_maintenance",
                severity=Severity.CRITICAL,
                text="No worker does the maintenance.",
                why=(
                    "Scheduled and retryable jobs do not become available, and the jobs of dead "
                    "workers are not rescued."
                ),
                cure="Start a worker of django_ojs: others do no maintenance.",
                command="ojs_worker",
                jobs=sum(observed.due.values()),
                pages=(AdminPage(model=Worker),),
            )
        )
    if observed.is_behind and not is_stopped:
        found.append(
            Finding(
                kind="due_late",
                severity=Severity.CRITICAL,
                text="Jobs that became due over a minute ago are still waiting.",
                why="Maintenance is behind: jobs start late.",
                cure="See whether a worker is running, and what the workers log.",
                command="ojs workers",
                jobs=sum(observed.due.values()),
                pages=(AdminPage(model=Worker),),
                follows=_OF_NO_MAINTENANCE,
            )
        )
    if listening.stale:
        found.append(
            Finding(
                kind="worker_stale",
                severity=Severity.CRITICAL,
                text=f"Workers that have sent no heartbeat in time: {grouped(listening.stale)}.",
                why="Their jobs do not run until another worker rescues them.",
                cure="See whether they live. Maintenance of any running worker removes them.",
                command="ojs workers",
                pages=(AdminPage(model=Worker),),
                follows=_OF_NO_WORKER,
            )
        )
    return found


def _of_row(row: OverviewRow, *, due: int, is_stopped: bool) -> list[Finding]:
    found = [*_of_bound(row), *_of_listeners(row, due=due, is_stopped=is_stopped)]
    if row.status.paused and row.depth:
        found.append(
            _stopped(
                row,
                kind="queue_paused",
                how="is paused",
                why="Workers fetch none of them.",
                cure="Resume it when the cause of the pause is over.",
                since=row.status.paused_at,
            )
        )
    if row.status.draining_at is not None:
        found.append(
            _stopped(
                row,
                kind="queue_draining",
                how="is draining",
                why="Enqueues are rejected.",
                cure="Resume it, or delete the queue when it is empty.",
                since=row.status.draining_at,
            )
        )
    return found


def _stopped(
    row: OverviewRow, *, kind: str, how: str, why: str, cure: str, since: datetime | None
) -> Finding:
    """Return a finding about a queue that has to be resumed."""
    queue = row.name
    may_resume = (("paused_at", timezone.now()),)
    return Finding(
        kind=kind,
        queue=queue,
        text=f"Queue {queue} {how}: {number_of(row.depth, 'job')} {_wait(row.depth)}.",
        why=why,
        cure=cure,
        command=f"ojs resume {queue}",
        jobs=row.depth,
        since=since,
        pages=(
            AdminPage(model=Queue, key=queue, action="resume", state=may_resume),
            AdminPage(model=Job, jobs=_ready(queue)),
        ),
    )


def _of_bound(row: OverviewRow) -> list[Finding]:
    full, queue = row.fullness, row.name
    if full is None:
        return []  # An extension reports why jobs were rejected in a queue without a bound.
    rejected = _lately(row.flow.rejected, full.since)
    dropped = _lately(row.flow.dropped, full.since)
    numbers = ((rejected, "rejected"), (dropped, "dropped"))
    lost = " and ".join(f"{number_of(n, 'job')} {what}" for n, what in numbers if n)
    pages = (
        AdminPage(model=Queue, key=queue, action="configure"),
        AdminPage(model=Job, jobs=_ready(queue)),
    )
    if full.level is not Level.GOOD:
        is_full, has_room = full.level is Level.BAD, full.pressure < 1
        # When the queue has room again, the incident lasts for a while, because it may fill again.
        how = "is nearly full" if not is_full else "was full lately" if has_room else "is full"
        when = _WHEN_FULL[row.status.config.backpressure.strategy]
        return [
            Finding(
                kind="queue_full" if is_full else "queue_nearly_full",
                severity=Severity.CRITICAL if is_full else Severity.WARNING,
                queue=queue,
                text=f"Queue {queue} {how}: {grouped(full.depth)} of {grouped(full.most)}"
                + (f"; {lost}." if lost else "."),
                why=when if is_full and not has_room else f"When it is full: {when}",
                cure=(
                    "Start more workers for it, see which jobs wait and why, or raise its bound."
                ),
                command=f"ojs_worker {_worker_arguments(queue)}",
                jobs=rejected + dropped,
                since=full.since,
                pages=pages,
            )
        ]
    if not lost:
        return []
    return [
        Finding(
            kind="queue_rejected",
            queue=queue,
            text=f"Queue {queue} was full in the last hour: {lost}.",
            why="Those jobs did not run.",
            cure="Start more workers for it, or raise the bound; the page of the queue shows both.",
            command=f"ojs_worker {_worker_arguments(queue)}",
            jobs=rejected + dropped,
            pages=pages,
        )
    ]


def _of_listeners(row: OverviewRow, *, due: int, is_stopped: bool) -> list[Finding]:
    queue, paused = row.name, row.status.paused
    retried = row.status.counts.get(State.RETRYABLE, 0)
    if row.listening == 0 and not paused and (row.available or due or retried):
        waits = row.available + due
        return [
            Finding(
                kind="queue_unworked",
                severity=Severity.CRITICAL if waits else Severity.WARNING,
                queue=queue,
                text=f"No worker takes jobs from {queue}: "
                + (
                    f"{number_of(waits, 'job')} {_be(waits)} ready."
                    if waits
                    else f"{number_of(retried, 'job')} {_wait(retried)} to be retried."
                ),
                why="They do not run until a worker takes them.",
                cure="Start a worker for it.",
                command=f"ojs_worker {_worker_arguments(queue)}",
                jobs=waits or retried,
                since=row.oldest,
                pages=(AdminPage(model=Worker), AdminPage(model=Job, jobs=_ready(queue))),
                follows=_OF_NO_WORKER,
            )
        ]
    if row.oldest is None or paused or is_stopped or not row.available or row.listening == 0:
        return []
    if timezone.now() - row.oldest < settings().warn_oldest_available:
        return []
    return [
        Finding(
            kind="queue_late",
            queue=queue,
            text=f"The oldest ready job of {queue} has waited too long; "
            f"{number_of(row.available, 'job')} {_be(row.available)} ready.",
            why="Jobs run later than OJS['WARN_OLDEST_AVAILABLE'] allows.",
            cure=(
                "Start more workers for it, see what its workers run, and whether a limit holds "
                "its jobs."
            ),
            command=f"ojs jobs queue:{queue} state:active",
            jobs=row.available,
            since=row.oldest,
            pages=(
                AdminPage(model=Job, jobs={"queue": queue, "states": (State.ACTIVE,)}),
                AdminPage(model=Job, jobs=_ready(queue)),
            ),
        )
    ]


def _lately(minutes: Sequence[int], since: datetime | None) -> int:
    """Return the sum of the minutes since the queue became full.

    Return the sum of all minutes if `since` is None or before the first minute.
    """
    if since is None:
        return sum(minutes)
    first = since - _FOUND_FULL_WITHIN
    number = timezone.now().timestamp() // 60 - first.timestamp() // 60 + 1
    return sum(minutes[-int(min(len(minutes), max(1, number))) :])


def _worker_arguments(queue: str) -> str:
    """Return the arguments of a worker that gets jobs of a queue."""
    pool = settings().pool_of_queue.get(queue)
    return f"--queues {queue}" if pool is None else f"--pool {pool}"


def _of_taken_back(found: TakenBack) -> list[Finding]:
    """Return findings about workers whose jobs were taken back, dead or alive."""
    results = []
    if (died := found.died) is not None:
        results.append(_died(died))
    if (live := found.live) is not None:
        number, jobs = len(live.jobs_of), live.jobs_of.total()
        results.append(
            Finding(
                kind="worker_stalled",
                text=(
                    f"{number_of(number, 'worker')} did not answer for "
                    f"{duration(live.silent) if live.silent else 'a time'}, and "
                    f"{'lives' if number == 1 else 'live'}; {number_of(jobs, 'job')} "
                    f"{'was' if jobs == 1 else 'were'} taken back in the last hour."
                ),
                why="What the handlers of these jobs had done may be done twice.",
                cure=(
                    "See whether the database or the network stalled, or the processes were "
                    "frozen: `manage.py ojs jobs error_type:worker_death` has the jobs."
                ),
                command="ojs jobs error_type:worker_death",
                jobs=jobs,
                since=live.first,
                pages=(
                    AdminPage(model=Job, jobs={"error_type": "worker_death"}),
                    AdminPage(model=Worker),
                ),
            )
        )
    return results


def _died(died: LostWorkers) -> Finding:
    number, jobs = len(died.jobs_of), died.jobs_of.total()
    text = f"{number_of(number, 'worker')} died in the last hour, with {number_of(jobs, 'job')}"
    if died.job is not None and number > 1:
        text += f"; {grouped(died.having)} of them had the job {died.job} of the type {died.type}"
    elif died.type and number > 1:
        text += f"; {grouped(died.having)} of them had jobs of the type {died.type}"
    elif died.job is not None:
        text += f": {died.job} of the type {died.type}"
    page = (
        AdminPage(model=Job, key=str(died.job))
        if died.job is not None
        else AdminPage(model=Job, jobs={"error_type": "worker_death", "type": died.type})
    )
    return Finding(
        kind="worker_died",
        severity=Severity.CRITICAL,
        type=died.type or "",
        text=f"{text}.",
        why=(
            "Their jobs run again, unless their attempts are spent; what their handlers had done "
            "may be done twice."
        ),
        cure=(
            "See the log of the workers and of the system (out of memory, kill, a reboot). A job "
            "that ends each of its workers becomes a dead letter."
        ),
        command="ojs jobs error_type:worker_death",
        jobs=jobs,
        since=died.first,
        pages=(page, AdminPage(model=Worker)),
    )


def _unknown_type(held: HeldBack) -> Finding:
    which = {"queue": held.queue, "type": held.type}
    return Finding(
        kind="unknown_type",
        severity=Severity.CRITICAL,
        queue=held.queue,
        type=held.type,
        text=f"No handler knows the type {held.type}: {number_of(held.jobs, 'job')} of "
        f"{held.queue} {_wait(held.jobs)}.",
        why="Workers postpone them again and again, and never run them.",
        cure="Deploy the handler; if the type was renamed or removed, cancel the jobs.",
        command=f"ojs cancel type:{held.type} queue:{held.queue}",
        jobs=held.jobs,
        pages=(
            AdminPage(model=Job, jobs=which),
            AdminPage(model=Job, jobs=which, action="cancel"),
        ),
    )


def _dead_letters(number: int) -> Finding:
    some = min(number, health_queries.MOST)
    least = "At least " if number > some else ""
    return Finding(
        kind="dead_letters",
        text=f"{least}{number_of(some, 'new dead letter')} in the last hour.",
        why="They have spent their attempts, and do not run again by themselves.",
        cure="See them by type and error; once the cause is removed, retry them.",
        command="ojs dead-letters",
        jobs=some,
        pages=(AdminPage(model=DeadLetterJob, query="?sort=last"),),
    )


def _transaction(lasts: timedelta) -> Finding:
    return Finding(
        kind="transaction",
        severity=Severity.CRITICAL if lasts >= VERY_OLD else Severity.WARNING,
        text="A transaction has been open for too long.",
        why="Until it ends, VACUUM cannot remove old rows, and claims get slower.",
        cure="Find it in pg_stat_activity, and end it.",
        command="ojs doctor --only horizon",
        since=timezone.now() - lasts,
    )


def locked(holder: LockHolder) -> Finding:
    """Return the finding that a session keeps the rows of running jobs locked.

    `doctor` asks for it.
    """
    return Finding(
        kind="jobs_locked",
        subject=str(holder.pid),
        severity=Severity.CRITICAL,
        text=f"The rows of {number_of(holder.jobs, 'running job')} are locked by {holder.name}.",
        why="While they are locked, their outcomes cannot be stored, nor their leases extended.",
        cure=(f"End that transaction, or its session: SELECT pg_terminate_backend({holder.pid});"),
        jobs=holder.jobs,
        since=holder.since,
        pages=(AdminPage(model=Job, key=str(holder.job)),),
    )


def _key(problem: KeyProblem) -> Finding:
    said, name = key_expiry.sentence(problem), problem.name
    change = AdminPage(model=ApiKey, key=str(problem.id), action="change")
    if problem.rejected_at is not None:  # The requests of a program fail now.
        return Finding(
            kind="api_key_rejected",
            subject=problem.prefix,
            severity=Severity.CRITICAL,
            text=f"The API key {name} is rejected. {said}",
            why="The requests of a program fail with 401.",
            cure="Give the program a valid key.",
            command="ojs_apikey list",
            pages=(change,),
        )
    if problem.replaced_by:
        cure, command = f"Give its programs the key {problem.replaced_by}.", ""
    else:
        cure = "Replace it, and give its programs the new key."
        command, change = (
            f"ojs_apikey replace {problem.prefix}",
            AdminPage(model=ApiKey, key=str(problem.id), action="replace"),
        )
    return Finding(
        kind="api_key_expires",
        subject=problem.prefix,
        text=f"The API key {name} expires at {absolute_time(problem.expires_at)}. {said}",
        why="From then on the requests of its programs fail with 401.",
        cure=cure,
        command=command,
        pages=(change,),
    )


def _ready(queue: str) -> dict[str, object]:
    return {"queue": queue, "states": (State.AVAILABLE,)}


def _be(number: int) -> str:
    return "is" if number == 1 else "are"


def _wait(number: int) -> str:
    return "waits" if number == 1 else "wait"

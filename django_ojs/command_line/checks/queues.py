"""Queues and the workers that fetch from them."""

from collections.abc import Iterator
from typing import Final

from django.conf import settings as django_settings
from django.utils import timezone

from django_ojs.command_line.checks.finding import Check, DoctorFinding
from django_ojs.command_line.lists import age
from django_ojs.extensions.limits.command_line import shown_key
from django_ojs.extensions.statistics import rollup_queries
from django_ojs.formatting import absolute_time, grouped
from django_ojs.operations import queues
from django_ojs.operations.access import key_expiry
from django_ojs.operations.maintenance import mode
from django_ojs.operations.queues.unbounded import BOUND_HINT, CHECK_ID, SHOWN, unbounded
from django_ojs.reports import findings, health_queries, queue_overview
from django_ojs.reports.findings import Finding
from django_ojs.storage import lock_holders
from django_ojs.storage.figures import oldest_available

#: Queues that are checked: the configured ones, and of the others those with the most jobs.
MOST_QUEUES: Final = 500

_WHEN_FULL: Final = {
    "reject": "Enqueues are rejected.",
    "block": "Enqueues wait for room, then fail.",
    "drop_oldest": "Its oldest jobs are dropped for new ones.",
}


def _bounds() -> Iterator[DoctorFinding]:
    if CHECK_ID in django_settings.SILENCED_SYSTEM_CHECKS:
        return
    if names := unbounded():
        more, shown = len(names) - SHOWN, ", ".join(names[:SHOWN])
        if more > 0:
            found = f"The queues {shown} and {more} more have no limit."
        elif len(names) > 1:
            found = f"The queues {shown} have no limit."
        else:
            found = f"The queue {shown} has no limit."
        yield DoctorFinding(
            found=found,
            why=(
                "If jobs are enqueued faster than workers run them, they fill the disk of the "
                "database."
            ),
            cure=BOUND_HINT,
        )


def _queues() -> Iterator[DoctorFinding]:
    statuses = queues.busiest(limit=MOST_QUEUES).rows
    names = [status.name for status in statuses]
    listeners = queue_overview.listeners(statuses)
    rows = queue_overview.overview(
        statuses,
        flows=rollup_queries.flows(queues=names),
        oldest=oldest_available.oldest(names),
        listens=listeners.by_queue,
    )
    found = findings.of_system(
        rows,
        health_queries.observe(),
        maintenance=mode.status(),
        stale=listeners.stale,
        transaction=None,
        lock_holders=lock_holders.lasting(),
    )
    # The others have checks of their own.
    yield from (_finding(each) for each in found if each.kind not in ("lost", "unknown_type"))


def _finding(each: Finding) -> DoctorFinding:
    if (problem := each.problem) is not None:
        ago = f" The first is {age(each.since, timezone.now())} old." if each.since else ""
        return DoctorFinding(found=problem.found + ago, why=problem.why, cure=problem.cure)
    found, why, cure = _texts(each)
    return DoctorFinding(found=found, why=why, cure=cure)


def _texts(each: Finding) -> tuple[str, str, str]:
    """Return what was found, why it matters, and what to do."""
    queue, number, of = each.queue, grouped(each.number), grouped(each.of)
    ago = age(each.since, timezone.now())
    some = f"at least {number}" if each.capped else number
    match each.kind:
        case "maintenance":
            return (
                _maintenance(each),
                "Workers fetch no job of any queue.",
                "End it on the overview of the admin, or over HTTP.",
            )
        case "full" | "near":
            why = _WHEN_FULL[str(each.text)]
            if each.kind == "near" or each.has_room:
                why = f"When it is full: {why}"
            cure = (
                f"Start more workers with --queues {queue}, see which jobs wait (`manage.py "
                f"ojs jobs queue:{queue} state:available`), or raise its bound."
            )
            return _full(each), why, cure
        case "rejected":
            return (
                _with_rejected(each, f"Queue {queue} was full in the last hour"),
                "Those jobs did not run.",
                f"Start more workers with --queues {queue}, or raise its bound.",
            )
        case "late":
            return (
                f"The oldest available job of {queue} has waited {ago}; {number} wait.",
                "Jobs run later than OJS['WARN_OLDEST_AVAILABLE'] allows.",
                f"Start more workers with --queues {queue}, or see what their jobs do "
                f"(`manage.py ojs jobs queue:{queue} state:active`), and whether a limit "
                "holds them (`manage.py ojs limits list`).",
            )
        case "failing":
            return (
                f"Runs of {each.type} that failed in the last {health_queries.FAILURE_MINUTES} "
                f"minutes, in the queue {queue}: {number} of "
                f"{of}.",
                "More fail than OJS['WARN_FAILURE_RATE'] allows.",
                f"See their errors: `manage.py ojs jobs type:{each.type} "
                "state:retryable,discarded`.",
            )
        case "unworked":
            return (
                f"No worker fetches the available jobs of {queue}: {number}.",
                "They never run.",
                f"Start a worker: `manage.py ojs_worker {each.text}`.",
            )
        case "stale":
            return (
                f"Workers that have sent no heartbeat in time: {number}.",
                "Their jobs do not run until another worker rescues them.",
                "See `manage.py ojs workers`. Maintenance of any running worker removes them.",
            )
        case "dead_letters":
            return (
                f"Jobs that became dead letters in the last hour: {some}.",
                "They have spent their attempts, and do not run again by themselves.",
                "`manage.py ojs dead-letters` has them by type and error; once the cause is "
                "removed, `manage.py ojs retry is:dead 'ended:<1h'`.",
            )
        case "limit_drops":
            return (
                f"Jobs dropped at their rate limits: {number}; limit keys with a "
                f"drop in the last hour: {of}.",
                "They are discarded, because on_limit of their limits is drop.",
                "See `manage.py ojs limits list`. Raise the limits, or let jobs wait.",
            )
        case "limit_key_paused":
            key = each.limit_key and shown_key(each.limit_key)
            return (
                f"Limit key {key} is paused for {ago}, until {absolute_time(each.until)}; waiting "
                f"jobs: {some}.",
                "None of them starts before, in no queue.",
                f"`manage.py ojs limits resume {key}`, when its cause is over.",
            )
        case "limit_keys_paused":
            return (
                f"More limit keys that are paused: {number}.",
                "None of their jobs starts before the ends of their pauses.",
                "`manage.py ojs limits list` has them.",
            )
        case "locked":
            since = f" for {ago}" if each.since else ""
            return (
                f"The rows of running jobs are locked by {each.text}{since}: {number}.",
                "Their outcomes cannot be stored, and their leases not be extended, meanwhile.",
                "End that transaction, or its session: SELECT pg_terminate_backend(PID).",
            )
        case "paused":
            since = f" for {ago}" if each.since else ""
            return (
                f"Queue {queue} is paused{since}; waiting jobs: {number}.",
                "Workers fetch none of them.",
                f"`manage.py ojs resume {queue}`, when its cause is over.",
            )
        case "draining":
            return (
                f"Queue {queue} is draining for {ago}; waiting jobs: {number}.",
                "Enqueues are rejected.",
                f"`manage.py ojs resume {queue}`, or delete the queue when it is empty.",
            )
        case _other:
            raise AssertionError(f"It has a check of its own: {each.kind}.")


def _maintenance(each: Finding) -> str:
    since = f" for {age(each.since, timezone.now())}" if each.since else ""
    return f"Maintenance mode is on{since}: {each.text or 'no reason was given'}."


def _full(each: Finding) -> str:
    ago, filled = age(each.since, timezone.now()), f"{grouped(each.number)} of {grouped(each.of)}"
    if each.kind == "full" and each.has_room:
        found = f"Queue {each.queue}, found full {ago} ago, has room again: {filled}"
    else:
        what = "full" if each.kind == "full" else "nearly full"
        since = f" for {ago}" if each.since else ""
        found = f"Queue {each.queue} is {what}{since}: {filled}"
    return _with_rejected(each, found)


def _with_rejected(each: Finding, found: str) -> str:
    """Return a sentence with the numbers of the jobs that the queue rejected and dropped."""
    numbers = ((each.rejected, "rejected"), (each.dropped, "dropped"))
    lost = " and ".join(f"{grouped(number)} {what}" for number, what in numbers if number)
    return f"{found}, {lost}." if lost else f"{found}."


def _lost() -> Iterator[DoctorFinding]:
    lost = health_queries.lost_workers()
    if lost is None:
        return
    for worker_id, jobs in lost.jobs_of.most_common():
        yield DoctorFinding(
            found=(
                f"The worker {worker_id or 'without an id'} died, or stopped reporting, in the "
                f"last hour; jobs that it held: {grouped(jobs)}{_shared(lost)}."
            ),
            why=(
                "They run again, unless their attempts are spent; what their handlers had done may "
                "be done twice."
            ),
            cure=(
                "See the log of the worker and of the system (out of memory, kill, a reboot). "
                "`manage.py ojs jobs 'error_type:worker_death'` shows jobs that end their workers."
            ),
        )


def _shared(lost: health_queries.LostWorkers) -> str:
    """Return what all the workers held that died, if there are several."""
    if len(lost.jobs_of) > 1 and lost.job:
        return f"; each worker that died held the job {lost.job}"
    if len(lost.jobs_of) > 1 and lost.type:
        return f"; each worker that died held jobs of the type {lost.type}"
    return ""


def _keys() -> Iterator[DoctorFinding]:
    for key in key_expiry.problems():
        if key.rejected_at is not None:
            found = (
                f"The API key {key.name} is rejected, the last time "
                f"{age(key.rejected_at, timezone.now())} ago."
            )
            why = "The requests of a program fail with 401."
            cure = "Give the program a valid key: `manage.py ojs_apikey list`, or create one."
        else:
            found = f"The API key {key.name} expires {age(key.expires_at, timezone.now())}."
            why = "From then on the requests of its programs fail with 401."
            cure = (
                f"Give its programs the key {key.replaced_by}."
                if key.replaced_by
                else f"`manage.py ojs_apikey replace {key.prefix}`; give its programs the new key."
            )
        yield DoctorFinding(
            found=f"{found} {key_expiry.sentence(key)}",
            why=why,
            cure=cure,
        )


CHECKS: Final = (
    Check(name="bounds", about="The bounds of the queues", run=_bounds),
    Check(name="queues", about="The queues and their workers", run=_queues),
    Check(name="lost-workers", about="Workers that died lately", run=_lost),
    Check(name="api-keys", about="The API keys in use", run=_keys),
)

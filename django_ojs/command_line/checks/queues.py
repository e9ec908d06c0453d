"""Queues and the workers that fetch from them."""

from collections.abc import Iterator
from typing import Final

from django.conf import settings as django_settings
from django.utils import timezone

from django_ojs.command_line.checks.finding import Check, DoctorFinding
from django_ojs.command_line.figures import age
from django_ojs.operations import queues
from django_ojs.operations.access import key_expiry
from django_ojs.operations.figures import health, queue_overview
from django_ojs.operations.maintenance import mode
from django_ojs.operations.queues.unbounded import BOUND_HINT, CHECK_ID, message, unbounded
from django_ojs.storage.figures import oldest_available, rollup_queries

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
        found, _, why = message(names).partition(": ")
        yield DoctorFinding(found=f"{found}.", why=why[:1].upper() + why[1:], cure=BOUND_HINT)


def _queues() -> Iterator[DoctorFinding]:
    statuses = queues.busiest(limit=MOST_QUEUES).queues
    names = [status.name for status in statuses]
    listeners = queue_overview.listeners(statuses)
    rows = queue_overview.overview(
        statuses,
        flows=rollup_queries.flows(queues=names),
        oldest=oldest_available.oldest(names),
        listens=listeners.by_queue,
    )
    found = health.findings(
        rows,
        health.observe(),
        maintenance=mode.status(),
        stale=listeners.stale,
        transaction=None,
    )
    # The others have checks of their own.
    yield from (_finding(each) for each in found if each.kind not in ("lost", "unknown_type"))


def _finding(each: health.Finding) -> DoctorFinding:
    since = f" for {age(each.since, timezone.now())}" if each.since else ""
    match each.kind:
        case "maintenance":
            return DoctorFinding(
                found=f"Maintenance mode is on{since}: {each.text or 'no reason was given'}.",
                why="Workers fetch no job of any queue.",
                cure="End it on the overview of the admin, or over HTTP.",
            )
        case "full" | "near":
            full = each.kind == "full"
            return DoctorFinding(
                found=f"Queue {each.queue} is {'full' if full else 'nearly full'}{since}: "
                f"{each.number:,} of {each.of:,}{_refused(each)}.",
                why=_WHEN_FULL[each.text] if full else f"When it is full: {_WHEN_FULL[each.text]}",
                cure=f"Start more workers with --queues {each.queue}, see which jobs wait "
                f"(`manage.py ojs jobs queue:{each.queue} state:available`), or raise its bound.",
            )
        case "refused":
            return DoctorFinding(
                found=f"Queue {each.queue} was full in the last hour{_refused(each)}.",
                why="Those jobs did not run.",
                cure=f"Start more workers with --queues {each.queue}, or raise its bound.",
            )
        case "late":
            return DoctorFinding(
                found=f"The oldest available job of {each.queue} has waited"
                f"{since.removeprefix(' for')}; {each.number:,} wait.",
                why="Jobs run later than OJS['WARN_OLDEST_AVAILABLE'] allows.",
                cure=f"Start more workers with --queues {each.queue}, or see what their jobs do "
                f"(`manage.py ojs jobs queue:{each.queue} state:active`).",
            )
        case "failing":
            return DoctorFinding(
                found=f"Runs of {each.type} that failed in the last {health.FAILURE_MINUTES} "
                f"minutes, in the queue {each.queue}: {each.number:,} of {each.of:,}.",
                why="More fail than OJS['WARN_FAILURE_RATE'] allows.",
                cure=f"See their errors: `manage.py ojs jobs type:{each.type} "
                "state:retryable,discarded`.",
            )
        case "unworked":
            return DoctorFinding(
                found=f"No worker fetches the available jobs of {each.queue}: {each.number:,}.",
                why="They never run.",
                cure=f"Start a worker: `manage.py ojs_worker --queues {each.queue}`.",
            )
        case "stale":
            return DoctorFinding(
                found=f"Workers that have sent no heartbeat in time: {each.number:,}.",
                why="Their jobs do not run until another worker rescues them.",
                cure="See `manage.py ojs workers`. Maintenance of any running worker removes them.",
            )
        case "dead_letters":
            more = "at least " if each.capped else ""
            return DoctorFinding(
                found=f"Jobs that became dead letters in the last hour: {more}{each.number:,}.",
                why="They have spent their attempts, and do not run again by themselves.",
                cure="See `manage.py ojs jobs is:dead 'ended:<1h'`; once the cause is removed, "
                "`manage.py ojs retry is:dead 'ended:<1h'`.",
            )
        case "limit_drops":
            return DoctorFinding(
                found=f"Jobs dropped at their rate limits: {each.number:,}, of {each.of:,} limit "
                "keys with one in the last hour.",
                why="They are discarded, because on_limit of their limits is drop.",
                cure="See the limit keys in the admin. Raise the limits, or let jobs wait.",
            )
        case "paused":
            return DoctorFinding(
                found=f"Queue {each.queue} is paused{since}; waiting jobs: {each.number:,}.",
                why="Workers fetch none of them.",
                cure=f"`manage.py ojs resume {each.queue}`, when its cause is over.",
            )
        case _:
            raise AssertionError(f"It has a check of its own: {each.kind}.")


def _refused(each: health.Finding) -> str:
    numbers = ((each.refused, "refused"), (each.dropped, "dropped"))
    counted = [f"{number:,} {word}" for number, word in numbers if number]
    return f", {' and '.join(counted)}" if counted else ""


def _lost() -> Iterator[DoctorFinding]:
    lost = health.lost_workers()
    if lost is None:
        return
    for worker_id, jobs in lost.jobs_of.most_common():
        yield DoctorFinding(
            found=f"The worker {worker_id or 'without an id'} died, or stopped reporting, in the "
            f"last hour; jobs that it held: {jobs:,}{_in_common(lost)}.",
            why="They run again, and what their handlers had done may be done twice.",
            cure="See the log of the worker and of the system (out of memory, kill, a reboot). "
            "`manage.py ojs jobs 'error_type:worker_death'` shows jobs that end their workers.",
        )


def _in_common(lost: health.LostWorkers) -> str:
    if len(lost.jobs_of) < 2 or not (lost.job or lost.type):
        return ""
    same = f"the job {lost.job}" if lost.job else f"jobs of the type {lost.type}"
    return f"; each worker that died held {same}"


def _keys() -> Iterator[DoctorFinding]:
    for key in key_expiry.problems():
        if key.refused_at is not None:
            ago = age(key.refused_at, timezone.now())
            found = f"The API key {key.name} is refused, the last time {ago} ago"
            why = "The requests of a program fail with 401."
            cure = "Give the program a valid key: `manage.py ojs_apikey list`, or create one."
        else:
            found = f"The API key {key.name} expires {age(key.expires_at, timezone.now())}"
            why = "From then on the requests of its programs fail with 401."
            cure = (
                f"Give its programs the key {key.replaced_by}."
                if key.replaced_by
                else f"`manage.py ojs_apikey replace {key.prefix}`; give its programs the new key."
            )
        yield DoctorFinding(found=f"{found}. {key_expiry.sentence(key)}", why=why, cure=cure)


CHECKS: Final = (
    Check(name="bounds", about="The bounds of the queues", run=_bounds),
    Check(name="queues", about="The queues and their workers", run=_queues),
    Check(name="lost-workers", about="Workers that died lately", run=_lost),
    Check(name="api-keys", about="The API keys in use", run=_keys),
)

"""Queues and the workers that fetch from them."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from django.conf import settings as django_settings
from django.utils import timezone

from django_ojs.command_line.checks.finding import Check, DoctorFinding
from django_ojs.command_line.limits import shown_key
from django_ojs.command_line.lists import age
from django_ojs.formatting import absolute_time, grouped
from django_ojs.operations import queues
from django_ojs.operations.access import key_expiry
from django_ojs.operations.figures import findings, health_queries, queue_overview
from django_ojs.operations.figures.findings import Finding
from django_ojs.operations.maintenance import mode
from django_ojs.operations.queues.unbounded import BOUND_HINT, CHECK_ID, SHOWN, unbounded
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
        more = len(names) - SHOWN
        values = {"queues": ", ".join(names[:SHOWN]), "more": more}
        if more > 0:
            found = "The queues %(queues)s and %(more)d more have no limit."
        else:
            found = (
                "The queue %(queues)s has no limit."
                if len(names) == 1
                else "The queues %(queues)s have no limit."
            )
        yield DoctorFinding(
            found=found % values,
            why=(
                "If jobs are enqueued faster than workers run them, they fill the disk of the "
                "database."
            ),
            cure=BOUND_HINT,
        )


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
    found = findings.of_system(
        rows,
        health_queries.observe(),
        maintenance=mode.status(),
        stale=listeners.stale,
        transaction=None,
    )
    # The others have checks of their own.
    yield from (_finding(each) for each in found if each.kind not in ("lost", "unknown_type"))


def _finding(each: Finding) -> DoctorFinding:
    found, why, cure = _texts(each)
    return DoctorFinding(found=found, why=why, cure=cure)


def _texts(each: Finding) -> tuple[str, str, str]:
    """Return what was found, why it matters, and what to do."""
    values = {
        "queue": each.queue,
        "type": each.type,
        "number": grouped(each.number),
        "of": grouped(each.of),
        "age": age(each.since, timezone.now()),
        "until": absolute_time(each.until),
        "key": each.limit_key and shown_key(each.limit_key),
        "text": each.text,
        "rejected": grouped(each.rejected),
        "dropped": grouped(each.dropped),
    }
    match each.kind:
        case "maintenance":
            return (
                _maintenance(each) % values,
                "Workers fetch no job of any queue.",
                "End it on the overview of the admin, or over HTTP.",
            )
        case "full" | "near":
            why = _WHEN_FULL[str(each.text)]
            if each.kind == "near" or each.has_room:
                why = f"When it is full: {why}"
            cure = (
                f"Start more workers with --queues {each.queue}, see which jobs wait (`manage.py "
                f"ojs jobs queue:{each.queue} state:available`), or raise its bound."
            )
            return _full(each, values), why, cure
        case "rejected":
            return (
                _with_rejected(each, f"Queue {each.queue} was full in the last hour"),
                "Those jobs did not run.",
                f"Start more workers with --queues {each.queue}, or raise its bound.",
            )
        case "rejected_tenants":
            return (
                _with_rejected(
                    each,
                    f"Tenants of queue {each.queue} were at their bounds in the last hour",
                ),
                "Those jobs did not run.",
                "See which of them have how many jobs on the page of the queue in the admin, "
                f"start more workers with --queues {each.queue}, or raise the bounds in its "
                "tenant_limits.",
            )
        case "late":
            return (
                f"The oldest available job of {each.queue} has waited "
                f"{age(each.since, timezone.now())}; {grouped(each.number)} wait.",
                "Jobs run later than OJS['WARN_OLDEST_AVAILABLE'] allows.",
                f"Start more workers with --queues {each.queue}, or see what their jobs do "
                f"(`manage.py ojs jobs queue:{each.queue} state:active`), and whether a limit "
                "holds them (`manage.py ojs limits list`).",
            )
        case "failing":
            return (
                f"Runs of {each.type} that failed in the last {health_queries.FAILURE_MINUTES} "
                f"minutes, in the queue {each.queue}: {grouped(each.number)} of "
                f"{grouped(each.of)}.",
                "More fail than OJS['WARN_FAILURE_RATE'] allows.",
                f"See their errors: `manage.py ojs jobs type:{each.type} "
                "state:retryable,discarded`.",
            )
        case "unworked":
            return (
                f"No worker fetches the available jobs of {each.queue}: {grouped(each.number)}.",
                "They never run.",
                f"Start a worker: `manage.py ojs_worker {each.text}`.",
            )
        case "stale":
            return (
                f"Workers that have sent no heartbeat in time: {grouped(each.number)}.",
                "Their jobs do not run until another worker rescues them.",
                "See `manage.py ojs workers`. Maintenance of any running worker removes them.",
            )
        case "dead_letters":
            found = (
                "Jobs that became dead letters in the last hour: at least %(number)s."
                if each.capped
                else "Jobs that became dead letters in the last hour: %(number)s."
            )
            return (
                found % values,
                "They have spent their attempts, and do not run again by themselves.",
                "`manage.py ojs dead-letters` has them by type and error; once the cause is "
                "removed, `manage.py ojs retry is:dead 'ended:<1h'`.",
            )
        case "limit_drops":
            return (
                f"Jobs dropped at their rate limits: {grouped(each.number)}; limit keys with a "
                f"drop in the last hour: {grouped(each.of)}.",
                "They are discarded, because on_limit of their limits is drop.",
                "See `manage.py ojs limits list`. Raise the limits, or let jobs wait.",
            )
        case "limit_key_paused":
            found = (
                (
                    "Limit key %(key)s is paused for %(age)s, until %(until)s; waiting jobs: at "
                    "least %(number)s."
                )
                if each.capped
                else (
                    "Limit key %(key)s is paused for %(age)s, until %(until)s; waiting jobs: "
                    "%(number)s."
                )
            )
            key = each.limit_key and shown_key(each.limit_key)
            return (
                found % values,
                "None of them starts before, in no queue.",
                f"`manage.py ojs limits resume {key}`, when its cause is over.",
            )
        case "limit_keys_paused":
            return (
                f"More limit keys that are paused: {grouped(each.number)}.",
                "None of their jobs starts before the ends of their pauses.",
                "`manage.py ojs limits list` has them.",
            )
        case "webhooks":
            return (
                "Webhooks that are disabled because their deliveries failed: "
                f"{grouped(each.number)}.",
                "Their receivers get no events.",
                "`manage.py ojs webhooks list` has them, and `webhooks show ID` the errors; "
                "when the receiver works again, `webhooks enable ID`.",
            )
        case "outbox":
            found = (
                "Rejected jobs of the outbox: at least %(number)s; the first is %(age)s old."
                if each.capped
                else "Rejected jobs of the outbox: %(number)s; the first is %(age)s old."
            )
            where = f"It is the outbox of the database {each.text}."
            return (
                f"{found % values} {where}" if each.text else found % values,
                "They are not sent again by themselves, and deleted after KEEP_DEAD_LETTERS.",
                "The outbox in the admin has their errors; once the cause is removed, requeue "
                "them there, or delete them.",
            )
        case "paused":
            found = (
                "Queue %(queue)s is paused for %(age)s; waiting jobs: %(number)s."
                if each.since
                else "Queue %(queue)s is paused; waiting jobs: %(number)s."
            )
            return (
                found % values,
                "Workers fetch none of them.",
                f"`manage.py ojs resume {each.queue}`, when its cause is over.",
            )
        case "draining":
            return (
                f"Queue {each.queue} is draining for {age(each.since, timezone.now())}; waiting "
                f"jobs: {grouped(each.number)}.",
                "Enqueues are rejected.",
                f"`manage.py ojs resume {each.queue}`, or delete the queue when it is empty.",
            )
        case _other:
            raise AssertionError(f"It has a check of its own: {each.kind}.")


def _maintenance(each: Finding) -> str:
    if each.since and each.text:
        return "Maintenance mode is on for %(age)s: %(text)s."
    if each.since:
        return "Maintenance mode is on for %(age)s: no reason was given."
    if each.text:
        return "Maintenance mode is on: %(text)s."
    return "Maintenance mode is on: no reason was given."


def _full(each: Finding, values: Mapping[str, Any]) -> str:
    if each.kind == "full" and each.has_room:
        text = "Queue %(queue)s, found full %(age)s ago, has room again: %(number)s of %(of)s"
    elif each.kind == "full":
        text = (
            "Queue %(queue)s is full for %(age)s: %(number)s of %(of)s"
            if each.since
            else "Queue %(queue)s is full: %(number)s of %(of)s"
        )
    else:
        text = (
            "Queue %(queue)s is nearly full for %(age)s: %(number)s of %(of)s"
            if each.since
            else "Queue %(queue)s is nearly full: %(number)s of %(of)s"
        )
    return _with_rejected(each, text % values)


def _with_rejected(each: Finding, found: str) -> str:
    """Return a sentence with the numbers of the jobs that the queue rejected and dropped."""
    text = "%(found)s."
    if each.rejected and each.dropped:
        text = "%(found)s, %(rejected)s rejected and %(dropped)s dropped."
    elif each.rejected:
        text = "%(found)s, %(rejected)s rejected."
    elif each.dropped:
        text = "%(found)s, %(dropped)s dropped."
    return text % {
        "found": found,
        "rejected": grouped(each.rejected),
        "dropped": grouped(each.dropped),
    }


def _lost() -> Iterator[DoctorFinding]:
    lost = health_queries.lost_workers()
    if lost is None:
        return
    for worker_id, jobs in lost.jobs_of.most_common():
        yield DoctorFinding(
            found=_died(lost)
            % {
                "worker": worker_id or "without an id",
                "number": grouped(jobs),
                "job": lost.job,
                "type": lost.type,
            },
            why=(
                "They run again, unless their attempts are spent; what their handlers had done may "
                "be done twice."
            ),
            cure=(
                "See the log of the worker and of the system (out of memory, kill, a reboot). "
                "`manage.py ojs jobs 'error_type:worker_death'` shows jobs that end their workers."
            ),
        )


def _died(lost: health_queries.LostWorkers) -> str:
    if len(lost.jobs_of) > 1 and lost.job:
        return (
            "The worker %(worker)s died, or stopped reporting, in the last hour; jobs that it "
            "held: %(number)s; each worker that died held the job %(job)s."
        )
    if len(lost.jobs_of) > 1 and lost.type:
        return (
            "The worker %(worker)s died, or stopped reporting, in the last hour; jobs that it "
            "held: %(number)s; each worker that died held jobs of the type %(type)s."
        )
    return (
        "The worker %(worker)s died, or stopped reporting, in the last hour; jobs that it held: "
        "%(number)s."
    )


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

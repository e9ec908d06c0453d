"""Queues and the workers that fetch from them."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from django.conf import settings as django_settings
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_ojs.command_line.checks.finding import Check, DoctorFinding
from django_ojs.command_line.figures import age
from django_ojs.command_line.limits import shown_key
from django_ojs.formatting import absolute_time, grouped, localized
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
    "reject": gettext_lazy("Enqueues are rejected."),
    "block": gettext_lazy("Enqueues wait for room, then fail."),
    "drop_oldest": gettext_lazy("Its oldest jobs are dropped for new ones."),
}


def _bounds() -> Iterator[DoctorFinding]:
    if CHECK_ID in django_settings.SILENCED_SYSTEM_CHECKS:
        return
    if names := unbounded():
        more = len(names) - SHOWN
        values = {"queues": ", ".join(names[:SHOWN]), "more": more}
        if more > 0:
            found = ngettext(
                "The queues %(queues)s and %(more)d more have no limit.",
                "The queues %(queues)s and %(more)d more have no limit.",
                more,
            )
        else:
            found = ngettext(
                "The queue %(queues)s has no limit.",
                "The queues %(queues)s have no limit.",
                len(names),
            )
        yield DoctorFinding(
            found=found % values,
            why=_(
                "If jobs are enqueued faster than workers run them, they fill the disk of the "
                "database."
            ),
            cure=localized(BOUND_HINT),
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
        lock_holders=health_queries.lock_holders(),
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
                _("Workers fetch no job of any queue."),
                _("End it on the overview of the admin, or over HTTP."),
            )
        case "full" | "near":
            why = str(_WHEN_FULL[str(each.text)])
            if each.kind == "near" or each.has_room:
                why = _("When it is full: %(consequence)s") % {"consequence": why}
            cure = _(
                "Start more workers with --queues %(queue)s, see which jobs wait "
                "(`manage.py ojs jobs queue:%(queue)s state:available`), or raise its bound."
            )
            return _full(each, values), why, cure % values
        case "rejected":
            return (
                _with_rejected(each, _("Queue %(queue)s was full in the last hour") % values),
                _("Those jobs did not run."),
                _("Start more workers with --queues %(queue)s, or raise its bound.") % values,
            )
        case "rejected_tenants":
            return (
                _with_rejected(
                    each,
                    _("Tenants of queue %(queue)s were at their bounds in the last hour") % values,
                ),
                _("Those jobs did not run."),
                _(
                    "See which of them have how many jobs on the page of the queue in the admin, "
                    "start more workers with --queues %(queue)s, or raise the bounds in its "
                    "tenant_limits."
                )
                % values,
            )
        case "late":
            return (
                _("The oldest available job of %(queue)s has waited %(age)s; %(number)s wait.")
                % values,
                _("Jobs run later than OJS['WARN_OLDEST_AVAILABLE'] allows."),
                _(
                    "Start more workers with --queues %(queue)s, or see what their jobs do "
                    "(`manage.py ojs jobs queue:%(queue)s state:active`), and whether a limit "
                    "holds them (`manage.py ojs limits list`)."
                )
                % values,
            )
        case "failing":
            return (
                _(
                    "Runs of %(type)s that failed in the last %(minutes)d minutes, in the queue "
                    "%(queue)s: %(number)s of %(of)s."
                )
                % {**values, "minutes": health_queries.FAILURE_MINUTES},
                _("More fail than OJS['WARN_FAILURE_RATE'] allows."),
                _("See their errors: `manage.py ojs jobs type:%(type)s state:retryable,discarded`.")
                % values,
            )
        case "unworked":
            return (
                _("No worker fetches the available jobs of %(queue)s: %(number)s.") % values,
                _("They never run."),
                _("Start a worker: `manage.py ojs_worker %(arguments)s`.")
                % {"arguments": each.text},
            )
        case "stale":
            return (
                _("Workers that have sent no heartbeat in time: %(number)s.") % values,
                _("Their jobs do not run until another worker rescues them."),
                _("See `manage.py ojs workers`. Maintenance of any running worker removes them."),
            )
        case "dead_letters":
            found = (
                _("Jobs that became dead letters in the last hour: at least %(number)s.")
                if each.capped
                else _("Jobs that became dead letters in the last hour: %(number)s.")
            )
            return (
                found % values,
                _("They have spent their attempts, and do not run again by themselves."),
                _(
                    "`manage.py ojs dead-letters` has them by type and error; once the cause is "
                    "removed, `manage.py ojs retry is:dead 'ended:<1h'`."
                ),
            )
        case "limit_drops":
            return (
                _(
                    "Jobs dropped at their rate limits: %(number)s; limit keys with a drop in the "
                    "last hour: %(of)s."
                )
                % values,
                _("They are discarded, because on_limit of their limits is drop."),
                _("See `manage.py ojs limits list`. Raise the limits, or let jobs wait."),
            )
        case "limit_key_paused":
            found = (
                _(
                    "Limit key %(key)s is paused for %(age)s, until %(until)s; waiting jobs: at "
                    "least %(number)s."
                )
                if each.capped
                else _(
                    "Limit key %(key)s is paused for %(age)s, until %(until)s; waiting jobs: "
                    "%(number)s."
                )
            )
            return (
                found % values,
                _("None of them starts before, in no queue."),
                _("`manage.py ojs limits resume %(key)s`, when its cause is over.") % values,
            )
        case "limit_keys_paused":
            return (
                _("More limit keys that are paused: %(number)s.") % values,
                _("None of their jobs starts before the ends of their pauses."),
                _("`manage.py ojs limits list` has them."),
            )
        case "webhooks":
            return (
                _("Webhooks that are disabled because their deliveries failed: %(number)s.")
                % values,
                _("Their receivers get no events."),
                _(
                    "`manage.py ojs webhooks list` has them, and `webhooks show ID` the errors; "
                    "when the receiver works again, `webhooks enable ID`."
                ),
            )
        case "outbox":
            found = (
                _("Rejected jobs of the outbox: at least %(number)s; the first is %(age)s old.")
                if each.capped
                else _("Rejected jobs of the outbox: %(number)s; the first is %(age)s old.")
            )
            where = _("It is the outbox of the database %(alias)s.") % {"alias": each.text}
            return (
                f"{found % values} {where}" if each.text else found % values,
                _("They are not sent again by themselves, and deleted after KEEP_DEAD_LETTERS."),
                _(
                    "The outbox in the admin has their errors; once the cause is removed, requeue "
                    "them there, or delete them."
                ),
            )
        case "locked":
            found = (
                _("The rows of running jobs are locked by %(text)s for %(age)s: %(number)s.")
                if each.since
                else _("The rows of running jobs are locked by %(text)s: %(number)s.")
            )
            return (
                found % values,
                _("Their outcomes cannot be stored, and their leases not be extended, meanwhile."),
                _("End that transaction, or its session: SELECT pg_terminate_backend(PID)."),
            )
        case "paused":
            found = (
                _("Queue %(queue)s is paused for %(age)s; waiting jobs: %(number)s.")
                if each.since
                else _("Queue %(queue)s is paused; waiting jobs: %(number)s.")
            )
            return (
                found % values,
                _("Workers fetch none of them."),
                _("`manage.py ojs resume %(queue)s`, when its cause is over.") % values,
            )
        case "draining":
            return (
                _("Queue %(queue)s is draining for %(age)s; waiting jobs: %(number)s.") % values,
                _("Enqueues are rejected."),
                _("`manage.py ojs resume %(queue)s`, or delete the queue when it is empty.")
                % values,
            )
        case _other:
            raise AssertionError(f"It has a check of its own: {each.kind}.")


def _maintenance(each: Finding) -> str:
    if each.since and each.text:
        return _("Maintenance mode is on for %(age)s: %(text)s.")
    if each.since:
        return _("Maintenance mode is on for %(age)s: no reason was given.")
    if each.text:
        return _("Maintenance mode is on: %(text)s.")
    return _("Maintenance mode is on: no reason was given.")


def _full(each: Finding, values: Mapping[str, Any]) -> str:
    if each.kind == "full" and each.has_room:
        text = _("Queue %(queue)s, found full %(age)s ago, has room again: %(number)s of %(of)s")
    elif each.kind == "full":
        text = (
            _("Queue %(queue)s is full for %(age)s: %(number)s of %(of)s")
            if each.since
            else _("Queue %(queue)s is full: %(number)s of %(of)s")
        )
    else:
        text = (
            _("Queue %(queue)s is nearly full for %(age)s: %(number)s of %(of)s")
            if each.since
            else _("Queue %(queue)s is nearly full: %(number)s of %(of)s")
        )
    return _with_rejected(each, text % values)


def _with_rejected(each: Finding, found: str) -> str:
    """Return a sentence with the numbers of the jobs that the queue rejected and dropped."""
    text = "%(found)s."
    if each.rejected and each.dropped:
        text = _("%(found)s, %(rejected)s rejected and %(dropped)s dropped.")
    elif each.rejected:
        text = _("%(found)s, %(rejected)s rejected.")
    elif each.dropped:
        text = _("%(found)s, %(dropped)s dropped.")
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
                "worker": worker_id or _("without an id"),
                "number": grouped(jobs),
                "job": lost.job,
                "type": lost.type,
            },
            why=_(
                "They run again, unless their attempts are spent; what their handlers had done may "
                "be done twice."
            ),
            cure=_(
                "See the log of the worker and of the system (out of memory, kill, a reboot). "
                "`manage.py ojs jobs 'error_type:worker_death'` shows jobs that end their workers."
            ),
        )


def _died(lost: health_queries.LostWorkers) -> str:
    if len(lost.jobs_of) > 1 and lost.job:
        return _(
            "The worker %(worker)s died, or stopped reporting, in the last hour; jobs that it "
            "held: %(number)s; each worker that died held the job %(job)s."
        )
    if len(lost.jobs_of) > 1 and lost.type:
        return _(
            "The worker %(worker)s died, or stopped reporting, in the last hour; jobs that it "
            "held: %(number)s; each worker that died held jobs of the type %(type)s."
        )
    return _(
        "The worker %(worker)s died, or stopped reporting, in the last hour; jobs that it held: "
        "%(number)s."
    )


def _keys() -> Iterator[DoctorFinding]:
    for key in key_expiry.problems():
        if key.rejected_at is not None:
            found = _("The API key %(name)s is rejected, the last time %(age)s ago.") % {
                "name": key.name,
                "age": age(key.rejected_at, timezone.now()),
            }
            why = _("The requests of a program fail with 401.")
            cure = _("Give the program a valid key: `manage.py ojs_apikey list`, or create one.")
        else:
            found = _("The API key %(name)s expires %(age)s.") % {
                "name": key.name,
                "age": age(key.expires_at, timezone.now()),
            }
            why = _("From then on the requests of its programs fail with 401.")
            cure = (
                _("Give its programs the key %(replaced_by)s.") % {"replaced_by": key.replaced_by}
                if key.replaced_by
                else _("`manage.py ojs_apikey replace %(prefix)s`; give its programs the new key.")
                % {"prefix": key.prefix}
            )
        yield DoctorFinding(
            found=_("%(found)s %(sentence)s")
            % {"found": found, "sentence": key_expiry.sentence(key)},
            why=why,
            cure=cure,
        )


CHECKS: Final = (
    Check(name="bounds", about=gettext_lazy("The bounds of the queues"), run=_bounds),
    Check(name="queues", about=gettext_lazy("The queues and their workers"), run=_queues),
    Check(name="lost-workers", about=gettext_lazy("Workers that died lately"), run=_lost),
    Check(name="api-keys", about=gettext_lazy("The API keys in use"), run=_keys),
)

"""`jobs` and `show`: find jobs, and show one with its history."""

from argparse import ArgumentParser
from dataclasses import replace
from typing import Any, Final

from django.utils import timezone

from django_ojs import hooks
from django_ojs.command_line.console import NONE, Console
from django_ojs.command_line.job_ids import whole_id
from django_ojs.command_line.lists import (
    ListColumn,
    age,
    ago,
    column,
    members,
    read_page,
    short_duration,
    write_details,
    write_list,
    write_table,
)
from django_ojs.command_line.searching import add_search, filter_of, with_search_help
from django_ojs.command_line.subcommand import OK, Options, Subcommand, add_limit, usage_error
from django_ojs.formatting import absolute_time, grouped
from django_ojs.handlers import parameters_of
from django_ojs.hooks import registry
from django_ojs.models import Attempt, Job
from django_ojs.operations.info import info
from django_ojs.operations.jobs import family, listing
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.operations.jobs.redaction import redacted, redacted_args, with_redacted_key
from django_ojs.operations.keyset import Page, PageRequest
from django_ojs.reports.not_running import why_not_running
from django_ojs.spec import json, progress
from django_ojs.spec.errors import NotFound
from django_ojs.spec.failure import with_code
from django_ojs.spec.states import State
from django_ojs.spec.times import elapsed

#: The time that is shown for each state: a word, and the field of the job.
_TIMES: Final = {
    State.SCHEDULED: ("due", "due_at"),
    State.PENDING: ("pending", "created_at"),
    State.AVAILABLE: ("waiting", "enqueued_at"),
    State.ACTIVE: ("running", "started_at"),
    State.RETRYABLE: ("due", "due_at"),
    State.COMPLETED: ("finished", "finished_at"),
    State.CANCELLED: ("cancelled", "finished_at"),
    State.DISCARDED: ("discarded", "finished_at"),
}
#: For these states, the time is shown without "ago", because they last until now.
_LASTING: Final = (State.PENDING, State.AVAILABLE, State.ACTIVE)
#: How many children of a job are in its JSON.
_MAX_CHILDREN: Final = 100
#: Attributes that are shown only with --args. Without it, errors have no message and no details.
_PAYLOAD: Final = (
    *("args", "meta", "result", "parent_results", "error", "errors"),
    *("last_checkpoint", "checkpoint"),
)


def state_of(job: Job) -> str:
    """Return the state of a job for a person."""
    return "dead letter" if job.dead_letter else str(job.state)


def _time(job: Job) -> str:
    word, _field = _TIMES[State(job.state)]
    return f"{word} {_when(job)}"


def _when(job: Job) -> str:
    _word, field = _TIMES[State(job.state)]
    shown = age if job.state in _LASTING else ago
    return shown(getattr(job, field), timezone.now())


def _error_type(error: Any) -> str:
    return str(error.get("type") or "error") if isinstance(error, dict) else ""


COLUMNS: Final[list[ListColumn[Job]]] = [
    column("id", "job"),
    *map(column, ("type", "queue")),
    column("state", "state", words=state_of),
    *members("priority"),
    column("attempt", "number", words=lambda job: f"{job.spent}/{job.max_attempts}", drops=2),
    ListColumn(name="time", value=_time, only="table"),
    *members("max_attempts created_at enqueued_at due_at started_at finished_at worker_id"),
    ListColumn(name="error_type", value=lambda job: _error_type(job.error) or None, drops=1),
    *members("dead_letter discard_reason"),
]


def first_of(console: Console, which: JobFilter, wanted: PageRequest) -> Page[Job]:
    """Return a page of the jobs of a filter, however many other jobs are between them.

    If one scan is not enough, show how many jobs have been read.
    """
    found: list[Job] = []
    read, whole = 0, None
    try:
        while True:
            page = listing.list_jobs(which, replace(wanted, limit=wanted.limit - len(found)))
            found += page.rows
            if page.after is None or len(found) >= wanted.limit:
                return page.showing(found)
            wanted = replace(wanted, cursor=page.after)
            read += page.scanned or 0
            whole = max(read, listing.about(which) if whole is None else whole)
            _show_progress(console, read, whole, len(found))
    finally:
        if read:
            console.progress("")


def _show_progress(console: Console, read: int, whole: int, found: int) -> None:
    text = f"{grouped(read)} of about {grouped(whole)} jobs read, {grouped(found)} found"
    console.progress(text)


def _jobs(console: Console, options: Options) -> int:
    which = filter_of(options)
    page = read_page(options, lambda wanted: first_of(console, which, wanted))
    is_table = write_list(
        console, "jobs", COLUMNS, page.rows, none="No job matches.", next=page.after
    )
    if is_table and page.after is not None:
        number, more = listing.count(which)
        found = f"at least {grouped(number)}" if more else grouped(number)
        console.prose(f"There are {found} jobs. The next ones: --after={page.after}")
    return OK


def _show(console: Console, options: Options) -> int:
    job_id = whole_id(options["id"])
    try:
        job = info(job_id)
    except NotFound:
        for other in registry.brought("what_is", job_id):
            raise usage_error(other) from None
        raise
    if console.as_json:
        reason = why_not_running(job, may_see=options["payload"])
        not_running = {"kind": reason.kind, "sentence": reason.sentence} if reason else None
        children = [str(child.pk) for child in family.children_of([job_id])[:_MAX_CHILDREN]]
        found = _as_json(job, with_payload=options["payload"])
        console.json({**found, "children": children, "not_running": not_running})
        return OK
    reported = progress.shown(job.progress, run=job.run, attempt=job.attempt, state=job.state)
    state = State(job.state)
    word, _field = _TIMES[state]
    console.line(f"{job.type} {job.pk}", "bold")
    lines = [
        ("state", f"{state} (dead letter)" if job.dead_letter else state),
        (str(word), _when(job)),
        (
            "queue",
            f"{job.queue}, priority {job.priority}",
        ),
        (
            "attempts",
            f"{job.spent} of {job.max_attempts}",
        ),
        ("discarded", job.discard_reason),
        ("worker", job.worker_id),
        ("progress", "" if reported.progress is None else f"{reported.progress:.0%}"),
        ("checkpoint", "the next run continues there" if "checkpoint" in hooks.shown(job) else ""),
        ("tags", ", ".join(job.tags)),
        ("workflow", job.workflow_id),
        ("parent", job.parent_id),
        ("children", _children(job)),
        ("created", absolute_time(job.created_at)),
        ("enqueued", absolute_time(job.enqueued_at)),
        ("due", absolute_time(job.due_at)),
        ("expires", absolute_time(job.expires_at)),
        ("started", absolute_time(job.started_at)),
        ("finished", absolute_time(job.finished_at)),
    ]
    write_details(console, lines)
    if reason := why_not_running(job, may_see=options["payload"]):
        console.line()
        console.line(f"  {reason.sentence}", "yellow")
    _show_attempts(console, job, with_payload=options["payload"])
    if options["payload"]:
        # The data that a handler reports beside its progress is as private as the arguments.
        payload = {
            "args": redacted_args(job.args, parameters_of(job.type, job.args)),
            "meta": job.meta,
            "progress": reported.data,
            "parent_results": job.options.get("parent_results"),
            "result": job.result,
            "error": job.error,
        }
        shown_parts = {name: redacted(part) for name, part in payload.items() if part}
        for name, part in {**shown_parts, **_others(job)}.items():
            console.line()
            console.line(name, "bold")
            for line in json.pretty(part).splitlines():
                console.line(line)
    elif job.args or job.meta or reported.data or job.result or _carries_more(job):
        console.line()
        console.line("Arguments, metadata and result: --args.")
    return OK


def _children(job: Job) -> str:
    number, more = listing.count(JobFilter(parent_id=job.pk))
    if not number:
        return ""
    return (
        f"{grouped(number) + '+' * more} job: manage.py ojs jobs parent:{job.pk}"
        if number == 1
        else f"{grouped(number) + '+' * more} jobs: manage.py ojs jobs parent:{job.pk}"
    )


def _show_attempts(console: Console, job: Job, *, with_payload: bool) -> None:
    attempts = list(Attempt.primary.filter(job_id=job.pk).order_by("run"))
    if not attempts:
        return
    console.line()

    def ran(attempt: Attempt) -> str:
        if attempt.started_at is None:
            return NONE
        return short_duration(elapsed(attempt.started_at, attempt.finished_at).total_seconds())

    def error(attempt: Attempt) -> str:
        shown = redacted(attempt.error) if with_payload else None
        name = _error_type(attempt.error)
        return f"{name}: {shown.get('message', '')}" if isinstance(shown, dict) else name

    columns: list[ListColumn[Attempt]] = [
        column("attempt", "number"),
        column("outcome", "state"),
        column("finished_at", "time"),
        ListColumn(name="ran", value=ran),
        column("worker_id", "id", drops=1),
        ListColumn(name="error", value=error, kind="text"),
    ]
    write_table(console, columns, attempts)


def _as_json(job: Job, *, with_payload: bool) -> dict[str, Any]:
    out = job.envelope()
    others = _others(job)
    for name in (*_PAYLOAD, *others):
        if name not in out:
            continue
        if with_payload:
            out[name] = others[name] if name in others else redacted(out[name])
        elif name not in ("error", "errors"):
            del out[name]
    if with_payload and "args" in out:
        out["args"] = redacted_args(out["args"], parameters_of(job.type, out["args"]))
    if not with_payload:
        if "error" in out:
            out["error"] = _without_payload(out["error"])
        if "errors" in out:
            out["errors"] = [_without_payload(each) for each in out["errors"]]
    if "rate_limit" in out:
        out["rate_limit"] = with_redacted_key(out["rate_limit"], may_see=with_payload)
    if job.worker_id is not None:
        out["worker_id"] = job.worker_id
    if job.state == State.DISCARDED:
        out |= {"dead_letter": job.dead_letter, "discard_reason": job.discard_reason}
    return out


def _carries_more(job: Job) -> bool:
    return bool(job.options.get("parent_results") or job.options.get("extra"))


def _others(job: Job) -> dict[str, Any]:
    """Return the client's unknown attributes, redacted, because they may contain anything."""
    extra = job.options.get("extra", {})
    shown = redacted(extra)
    return shown if isinstance(shown, dict) else dict.fromkeys(extra, shown)


def _without_payload(error: Any) -> dict[str, Any]:
    shown = ("type", "code", "attempt", "occurred_at", "retry_delay_ms")
    full = with_code(error)
    return {name: full[name] for name in shown if name in full}


def _jobs_arguments(parser: ArgumentParser) -> None:
    add_search(parser)
    add_limit(parser, 50, "the number of jobs (default: %(default)d)")
    parser.add_argument("--after", metavar="NEXT", help="continue after an earlier page")


def _show_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="the id of the job, or its beginning")
    parser.add_argument(
        "--args",
        dest="payload",
        action="store_true",
        help="show arguments, metadata, result and errors as well, without what ADMIN_REDACT hides",
    )


SUBCOMMANDS: Final = (
    Subcommand(
        name="jobs",
        help="find jobs",
        description=with_search_help(
            "List jobs, the newest or the most urgent first, without their arguments.\n"
            "It reads all jobs until it has found as many as --limit; on a terminal it shows "
            "how many\nit has read."
        ),
        examples="""\
  manage.py ojs jobs state:discarded queue:email
  manage.py ojs jobs 'type:invoice.* created:<2h'
  manage.py ojs jobs args.user_id:42 --json""",
        add_arguments=_jobs_arguments,
        run=_jobs,
    ),
    Subcommand(
        name="show",
        help="one job, with the history of its runs",
        description=(
            "Show a job. Its arguments, metadata, result and the messages of "
            "its errors are shown with --args only."
        ),
        examples="""\
  manage.py ojs show 019539a4-b68
  manage.py ojs show 019539a4-b68c-7def-8000-1a2b3c4d5e6f --args --json""",
        add_arguments=_show_arguments,
        run=_show,
    ),
)

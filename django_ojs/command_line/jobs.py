"""`jobs` and `show`: find jobs, and show one with its history."""

from argparse import ArgumentParser
from datetime import datetime
from typing import Any, Final

from django.utils import timezone

from django_ojs.command_line.console import NONE, Cell, Console, TableColumn
from django_ojs.command_line.figures import age, read_replica, short_duration
from django_ojs.command_line.searching import SEARCH_HELP, add_search, filter_of
from django_ojs.command_line.subcommand import OK, Options, Subcommand, usage_error, whole_number
from django_ojs.models import Attempt, Job
from django_ojs.operations.figures.not_running import why_not_running
from django_ojs.operations.info import info
from django_ojs.operations.jobs import cursor, listing
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.operations.jobs.redaction import redacted
from django_ojs.spec import json
from django_ojs.spec.errors import OJSError
from django_ojs.spec.failure import with_code
from django_ojs.spec.ids import parse_id
from django_ojs.spec.states import State
from django_ojs.spec.times import format_timestamp

_STYLES: Final = {
    State.ACTIVE: "blue",
    State.COMPLETED: "green",
    State.RETRYABLE: "yellow",
    State.DISCARDED: "red",
}
#: The time that matters in each state: a word, and a field.
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
_COLUMNS: Final = (
    TableColumn("ID"),
    TableColumn("TYPE", shrinks=True),
    TableColumn("QUEUE", shrinks=True),
    TableColumn("STATE"),
    TableColumn("ATTEMPTS", right=True),
    TableColumn("TIME"),
    TableColumn("ERROR", shrinks=True),
)
#: What a job carries; shown with --args only.
_PAYLOAD: Final = ("args", "meta", "result", "error", "errors", "last_checkpoint", "checkpoint")


def table_of(console: Console, jobs: list[Job]) -> None:
    """Write a row for each job."""
    now = timezone.now()
    console.table(_COLUMNS, [_row(job, now) for job in jobs])


def _row(job: Job, now: datetime) -> list[Cell | str]:
    state = State(job.state)
    word, field = _TIMES[state]
    return [
        str(job.pk),
        job.type,
        job.queue,
        Cell("dead letter" if job.dead_letter else job.state, _STYLES.get(state, "")),
        f"{job.spent}/{job.max_attempts}",
        f"{word} {age(getattr(job, field), now)}",
        _error_type(job.error) or NONE,
    ]


def _error_type(error: Any) -> str:
    return str(error.get("type") or "error") if isinstance(error, dict) else ""


def _summary(job: Job) -> dict[str, Any]:
    times = ("created_at", "enqueued_at", "due_at", "started_at", "finished_at")
    moments = {name: getattr(job, name) for name in times}
    return {
        "id": str(job.pk),
        "type": job.type,
        "queue": job.queue,
        "state": job.state,
        "priority": job.priority,
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        **{name: format_timestamp(at) for name, at in moments.items() if at is not None},
        "worker_id": job.worker_id,
        "error_type": _error_type(job.error) or None,
        "dead_letter": job.dead_letter,
        "discard_reason": job.discard_reason,
    }


def first_of(which: JobFilter, limit: int, after: cursor.Cursor | None = None) -> listing.JobPage:
    """Return the first jobs of a filter, whatever the number of jobs between them."""
    found: list[Job] = []
    while True:
        page = listing.list_jobs(which, after=after, limit=limit - len(found))
        found += page.jobs
        if page.end is None or len(found) >= limit:
            return listing.JobPage(jobs=found, end=page.end)
        after = page.end


def _jobs(console: Console, options: Options) -> int:
    which = filter_of(console, options)
    after = None
    if options["after"] is not None:
        try:
            after = cursor.read(options["after"], listing.order_of(which))
        except OJSError:
            raise usage_error("--after must be the `next` of the same search.") from None
    page = read_replica(console, lambda: first_of(which, options["limit"], after))
    end = None if page.end is None else cursor.write(page.end)
    if console.as_json:
        console.json({"jobs": [_summary(job) for job in page.jobs], "next": end})
        return OK
    if not page.jobs:
        console.line("No job matches.")
        return OK
    table_of(console, page.jobs)
    if end is not None:
        number, more = listing.count(which)
        least = "at least " if more else ""
        console.line(f"There are {least}{number:,} jobs. The next ones: --after '{end}'")
    return OK


def _show(console: Console, options: Options) -> int:
    try:
        key = parse_id(options["id"])
    except OJSError as error:
        raise usage_error(error.message) from None
    job = info(key)
    if console.as_json:
        reason = why_not_running(job)
        not_running = {"kind": reason.kind, "sentence": reason.sentence} if reason else None
        console.json({**_as_json(job, with_payload=options["payload"]), "not_running": not_running})
        return OK
    now = timezone.now()
    state = State(job.state)
    word, field = _TIMES[state]
    console.line(f"{job.type} {job.pk}", "bold")
    lines = [
        ("state", f"{state}{' (dead letter)' if job.dead_letter else ''}"),
        (word, age(getattr(job, field), now)),
        ("queue", f"{job.queue}, priority {job.priority}"),
        ("attempts", f"{job.spent} of {job.max_attempts}"),
        ("discarded", job.discard_reason),
        ("worker", job.worker_id),
        ("tags", ", ".join(job.tags)),
    ]
    lines += [
        (name, _moment(getattr(job, f"{name}_at")))
        for name in ("created", "enqueued", "due", "expires", "started", "finished")
    ]
    for name, value in lines:
        if value:
            console.line(f"  {name:<10} {value}", _STYLES.get(state, "") if name == "state" else "")
    if reason := why_not_running(job):
        console.line()
        console.line(f"  {reason.sentence}", "yellow")
    _show_attempts(console, job, with_payload=options["payload"])
    if options["payload"]:
        for name in ("args", "meta", "result", "error"):
            if value := getattr(job, name):
                console.line()
                console.line(name, "bold")
                for line in json.pretty(redacted(value)).splitlines():
                    console.line(line)
    elif job.args or job.meta or job.result:
        console.line()
        console.line("Arguments, metadata and result: --args.")
    return OK


def _show_attempts(console: Console, job: Job, *, with_payload: bool) -> None:
    attempts = list(Attempt.primary.filter(job_id=job.pk).order_by("id"))
    if not attempts:
        return
    console.line()
    columns = [
        TableColumn("ATTEMPT", right=True),
        *(TableColumn(title) for title in ("OUTCOME", "ENDED", "RAN")),
        *(TableColumn(title, shrinks=True) for title in ("WORKER", "ERROR")),
    ]
    rows = []
    for each in attempts:
        error = _error_type(each.error)
        shown = redacted(each.error) if with_payload else None
        if isinstance(shown, dict):
            error = f"{error}: {shown.get('message', '')}"
        ran = None if each.started_at is None else each.finished_at - each.started_at
        rows.append(
            [
                str(each.attempt),
                str(each.outcome),
                _moment(each.finished_at),
                NONE if ran is None else short_duration(ran.total_seconds()),
                each.worker_id or NONE,
                error or NONE,
            ]
        )
    console.table(columns, rows)


def _as_json(job: Job, *, with_payload: bool) -> dict[str, Any]:
    out = job.envelope()
    for name in _PAYLOAD:
        if name not in out:
            continue
        if with_payload:
            out[name] = redacted(out[name])
        elif name not in ("error", "errors"):
            del out[name]
    if not with_payload:
        if "error" in out:
            out["error"] = _without_payload(out["error"])
        if "errors" in out:
            out["errors"] = [_without_payload(each) for each in out["errors"]]
    if job.worker_id is not None:
        out["worker_id"] = job.worker_id
    if job.state == State.DISCARDED:
        out |= {"dead_letter": job.dead_letter, "discard_reason": job.discard_reason}
    return out


def _without_payload(error: Any) -> dict[str, Any]:
    shown = ("type", "code", "attempt", "occurred_at", "retry_delay_ms")
    full = with_code(error)
    return {name: full[name] for name in shown if name in full}


def _moment(moment: datetime | None) -> str:
    return "" if moment is None else f"{timezone.localtime(moment):%Y-%m-%d %H:%M:%S %Z}"


def _jobs_arguments(parser: ArgumentParser) -> None:
    add_search(parser)
    parser.add_argument(
        "--limit",
        type=whole_number,
        default=50,
        metavar="N",
        help="the number of jobs (default: 50)",
    )
    parser.add_argument("--after", metavar="NEXT", help="continue after an earlier page")


def _show_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="the id of the job")
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
        description="List jobs, the newest or the most urgent first, without their arguments.\n\n"
        + SEARCH_HELP,
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
        description="Show a job. Its arguments, metadata, result and the messages of its errors "
        "are shown with --args only.",
        examples="""\
  manage.py ojs show 019539a4-b68c-7def-8000-1a2b3c4d5e6f
  manage.py ojs show 019539a4-b68c-7def-8000-1a2b3c4d5e6f --args --json""",
        add_arguments=_show_arguments,
        run=_show,
    ),
)

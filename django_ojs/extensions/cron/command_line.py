"""`cron`: list the schedules, store those of the code, run, pause and resume them."""

from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any, Final

from django.utils import timezone

from django_ojs.command_line.console import NONE, Console
from django_ojs.command_line.jobs import state_of
from django_ojs.command_line.lists import (
    ListColumn,
    act_on_each,
    ago,
    as_json,
    column,
    members,
    write_list,
)
from django_ojs.command_line.operator import operator
from django_ojs.command_line.subcommand import (
    OK,
    Options,
    Subcommand,
    unknown_name,
    usage_error,
)
from django_ojs.extensions.cron import celery_beat_command as celery_beat
from django_ojs.extensions.cron import operations as cron
from django_ojs.extensions.cron import schedules
from django_ojs.extensions.cron.models import CronJob
from django_ojs.extensions.cron.operations.schedule import describe
from django_ojs.formatting import absolute_time, grouped
from django_ojs.models import Job
from django_ojs.operations.keyset import PageRequest, all_rows
from django_ojs.spec.errors import NotFound

#: How many cron jobs one query reads.
_PAGE: Final = 500
#: How many known names a message about an unknown one can suggest.
_MOST_NAMES: Final = 200


def _known(names: list[str]) -> list[CronJob]:
    """Return the named cron jobs. An unknown name is an error, because it is probably misspelt."""
    if not names:
        raise usage_error("Name at least one cron job; `manage.py ojs cron list` lists them.")
    return [_get(name) for name in names]


def _get(name: str) -> CronJob:
    try:
        return cron.get(name)
    except NotFound:
        raise unknown_name(
            name,
            [job.name for job in cron.page(PageRequest(limit=_MOST_NAMES)).rows],
            none="There is no cron job %(name)r. None is registered.",
            nothing_like_it="There is no cron job %(name)r. The names are %(known)s.",
            near="There is no cron job %(name)r. Did you mean %(near)s?",
        ) from None


def _list(console: Console, options: Options) -> int:
    names = options["names"]
    jobs = _known(names) if names else list(all_rows(cron.page, _PAGE))
    write_list(console, "cron_jobs", _columns(jobs), jobs, none="No cron job is registered.")
    return OK


def _last_jobs(jobs: list[CronJob]) -> dict[str, Job]:
    found: dict[str, Job] = {}
    for start in range(0, len(jobs), _PAGE):
        found |= cron.last_jobs([job.name for job in jobs[start : start + _PAGE]])
    return found


def _columns(jobs: list[CronJob]) -> list[ListColumn[CronJob]]:
    last = _last_jobs(jobs)

    def last_job(cron_job: CronJob) -> dict[str, Any] | None:
        # It is None if no run is kept, or if the job of the run was deleted.
        job = last.get(cron_job.name)
        return None if job is None else {"id": str(job.pk), "state": job.state}

    return [
        column("name"),
        column(
            "cron", "text", "expression", words=lambda job: describe(job.expression, job.timezone)
        ),
        *members("timezone description"),
        column("type", drops=3),
        *members("queue overlap_policy enabled"),
        column(
            "next_run_at",
            "time",
            words=lambda job: ago(job.next_run_at, timezone.now()) if job.enabled else "paused",
        ),
        column("last_run_at", "time", drops=2),
        ListColumn(
            name="last_job",
            value=last_job,
            words=lambda job: state_of(last[job.name]) if job.name in last else NONE,
        ),
        column(
            "skipped_count",
            words=lambda job: (
                job.skipped_count and f"{grouped(job.skipped_count)}: {job.skipped_why}"
            ),
            title="SKIPPED",
            drops=1,
        ),
        column("run_count", "number", title="RUNS", drops=4),
        *members("missed_count"),
        column("owner", drops=5),
    ]


def _sync(console: Console, options: Options) -> int:
    if options["names"]:
        raise usage_error("`sync` stores all schedules of the code: leave the names out.")
    result = schedules.sync(dry_run=options["dry_run"])
    if console.as_json:
        console.json(
            {
                "created": result.created,
                "changed": result.changed,
                "taken_over": result.taken_over,
                "removed": result.removed,
                "kept": result.kept,
                "unchanged": result.unchanged,
                "dry_run": options["dry_run"],
            }
        )
        return OK
    for name, text in result.lines():
        console.line(f"{name}: {text}.")
    number = len(result.unchanged)
    console.line(
        f"{grouped(number)} unchanged." if number or result.lines() else "The code declares none."
    )
    if options["dry_run"]:
        console.note("Nothing was changed (--dry-run).")
    return OK


def _run(console: Console, options: Options) -> int:
    def trigger(name: str) -> tuple[dict[str, Any], str]:
        job = cron.trigger(name, by=operator())
        return {"job_id": str(job.id)}, f"{name}: job {job.id} is {job.state}."

    names = {job.name: job.name for job in _known(options["names"])}
    return act_on_each(console, "cron_jobs", names, trigger)


def _enable(enabled: bool) -> Callable[[Console, Options], int]:
    def run(console: Console, options: Options) -> int:
        # All names are checked before the first cron job changes.
        changed = []
        for job in _known(options["names"]):
            changed.append(cron.set_enabled(job.name, enabled))
        if console.as_json:
            columns = _columns(changed)
            console.json({"cron_jobs": [as_json(columns, job) for job in changed]})
            return OK
        for job in changed:
            text = (
                f"Cron job {job.name} runs next at {absolute_time(job.next_run_at)}."
                if enabled
                else f"Cron job {job.name} is paused."
            )
            console.line(text)
        return OK

    return run


_ACTIONS: Final = {
    "list": _list,
    "sync": _sync,
    "run": _run,
    "pause": _enable(False),
    "resume": _enable(True),
    "import-celery-beat": celery_beat.run,
}


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=_ACTIONS, help="what to do")
    parser.add_argument("names", nargs="*", metavar="NAME", help="the name of a cron job")
    parser.add_argument("--dry-run", action="store_true", help="with sync: show what would change")
    parser.add_argument(
        "--write", action="store_true", help="with import-celery-beat: register the cron jobs"
    )


SUBCOMMANDS: Final = (
    Subcommand(
        name="cron",
        help="list schedules, store those of the code, run, pause and resume them",
        description=(
            "list: the schedules, or the named ones, and when each runs next. "
            "sync: store the schedules that the code declares with @ojs.cron, "
            "and remove those that it no longer declares, as a starting worker does. "
            "run: enqueue a job now, outside of the schedule; the overlap "
            "policy applies. pause, resume: a paused schedule enqueues no "
            "jobs. import-celery-beat: show what the periodic tasks of "
            "django_celery_beat become, and what has no equivalent; with "
            "--write, register them, once."
        ),
        examples="  manage.py ojs cron list\n"
        "  manage.py ojs cron sync --dry-run\n"
        "  manage.py ojs cron run shop.nightly-report\n"
        "  manage.py ojs cron pause shop.nightly-report\n"
        "  manage.py ojs cron import-celery-beat --write",
        add_arguments=_arguments,
        run=lambda console, options: _ACTIONS[options["action"]](console, options),
    ),
)

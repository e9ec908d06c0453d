"""`purge`: delete the jobs of a queue."""

from argparse import ArgumentParser, ArgumentTypeError
from typing import Final

from django.utils import timezone

from django_ojs.command_line.console import Console
from django_ojs.command_line.queues import known_queue
from django_ojs.command_line.retry_and_cancel import ask, number_of_jobs
from django_ojs.command_line.subcommand import (
    FAILED,
    OK,
    Options,
    Subcommand,
    add_confirmation,
    duration,
    usage_error,
)
from django_ojs.formatting import grouped
from django_ojs.operations.access import operator
from django_ojs.operations.jobs import bulk, listing
from django_ojs.spec.errors import InvalidRequest
from django_ojs.spec.states import State


def _purge(console: Console, options: Options) -> int:
    name, states, older_than = known_queue(options["queue"]).name, options["state"], None
    if options["older_than"] is not None:
        older_than = timezone.now() - options["older_than"]
    try:
        which = bulk.purged(name, states, older_than)
    except InvalidRequest as error:
        raise usage_error(error.message) from None
    number, more = listing.count(which)
    what = f"{number_of_jobs(number, more)} of {name} ({', '.join(states)})"
    if options["dry_run"]:
        if console.as_json:
            console.json({"queue": name, "dry_run": True, "matched": number, "more": more})
        else:
            console.line(f"This would delete {what}; nothing was changed.")
        return OK
    if number > 1 or more:
        ask(console, f"Delete {what}, with their error histories?", yes=options["yes"])
    deleted, failed = 0, 0
    entry = operator.acted("queue.purged", name, states=states)
    try:
        while True:
            # All batches together have one audit entry, so `purge` must not add others.
            with operator.acting(None):
                summary = bulk.purge(name, states, older_than=older_than)
            deleted, failed = deleted + summary.succeeded, summary.failed
            console.progress(_deleted(deleted))
            if not summary.has_more or not summary.succeeded:
                break
    finally:
        # The audit entry gets the numbers even after an interruption: the deleted jobs are gone.
        entry.complete(jobs=deleted, skipped=failed)
    console.progress("")
    if console.as_json:
        console.json({"queue": name, "deleted": deleted, "failed": failed})
    else:
        console.line(f"{_deleted(deleted)}, {grouped(failed)} failed.")
        for each in summary.errors:
            console.note(f"{each.job_id}: {each.error}")
    return FAILED if failed else OK


def _deleted(number: int) -> str:
    return f"{grouped(number)} deleted"


def _states(text: str) -> tuple[State, ...]:
    names = [name for name in text.lower().split(",") if name]
    if not names or not {*names} <= {*State}:
        states = ", ".join(State)
        raise ArgumentTypeError(f"must be one of {states}")
    return tuple(dict.fromkeys(State(name) for name in names))


def _purge_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("queue", metavar="QUEUE", help="the name of the queue")
    parser.add_argument(
        "--state",
        type=_states,
        required=True,
        metavar="A,B",
        help="delete jobs in these states; active ones cannot be purged",
    )
    parser.add_argument(
        "--older-than",
        type=duration,
        metavar="AGE",
        help="only jobs that ended at least this long ago; for terminal states",
    )
    add_confirmation(parser)


SUBCOMMANDS: Final = (
    Subcommand(
        name="purge",
        help="delete the jobs of a queue in some states",
        description=(
            "Delete jobs of a queue permanently, with their error histories. "
            "Running jobs continue, and\nthe queue and its configuration stay."
        ),
        examples="""\
  manage.py ojs purge email --state available,scheduled --dry-run
  manage.py ojs purge email --state completed --older-than 7d --yes""",
        add_arguments=_purge_arguments,
        run=_purge,
    ),
)

"""`purge` and `prune`: delete the jobs of a queue, or those past their retention."""

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from typing import Final

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_ojs.command_line.changes import ask, number_of_jobs
from django_ojs.command_line.console import Console
from django_ojs.command_line.queues import known_queue
from django_ojs.command_line.subcommand import (
    FAILED,
    OK,
    Options,
    Subcommand,
    add_confirmation,
    duration,
    usage_error,
)
from django_ojs.formatting import error_message, grouped, localized
from django_ojs.operations.access import audit_trail
from django_ojs.operations.enqueue import outbox
from django_ojs.operations.events import log
from django_ojs.operations.jobs import bulk, bulk_operations, listing
from django_ojs.operations.maintenance import pruning
from django_ojs.spec.errors import InvalidRequest
from django_ojs.spec.states import State
from django_ojs.storage import database


def _purge(console: Console, options: Options) -> int:
    name, states, older_than = known_queue(options["queue"]).name, options["state"], None
    if options["older_than"] is not None:
        older_than = timezone.now() - options["older_than"]
    try:
        which = bulk.purged(name, states, older_than)
    except InvalidRequest as error:
        raise usage_error(error_message(error)) from None
    number, more = listing.count(which)
    what = {"jobs": number_of_jobs(number, more), "queue": name, "states": ", ".join(states)}
    if options["dry_run"]:
        if console.as_json:
            console.json({"queue": name, "dry_run": True, "matched": number, "more": more})
        else:
            text = _("This would delete %(jobs)s of %(queue)s (%(states)s); nothing was changed.")
            console.line(text % what)
        return OK
    if number > 1 or more:
        text = _("Delete %(jobs)s of %(queue)s (%(states)s), with their error histories?")
        ask(console, text % what, yes=options["yes"])
    deleted, failed = 0, 0
    entry = audit_trail.record("queue.purged", name, states=states)
    try:
        while True:
            # One entry for all batches.
            with audit_trail.acting(None):
                summary = bulk.purge(name, states, older_than=older_than)
            deleted, failed = deleted + summary.succeeded, summary.failed
            console.progress(_deleted(deleted))
            if not summary.has_more or not summary.succeeded:
                break
    finally:
        # Also when it is interrupted: what was deleted is gone.
        audit_trail.complete(entry, jobs=deleted, skipped=failed)
    console.progress("")
    if console.as_json:
        console.json({"queue": name, "deleted": deleted, "failed": failed})
    else:
        text = ngettext(
            "%(deleted)s deleted, %(failed)s failed.",
            "%(deleted)s deleted, %(failed)s failed.",
            deleted,
        )
        console.line(text % {"deleted": grouped(deleted), "failed": grouped(failed)})
        for each in summary.errors:
            console.note(f"{each.job_id}: {localized(each.error)}")
    return FAILED if failed else OK


#: What is deleted beside the jobs: a name, and a step of maintenance.
_OTHERS: Final[dict[str, Callable[[], int]]] = {
    "events": log.prune,
    "bulk_operations": bulk_operations.prune,
    "audit_entries": audit_trail.prune,
    "outbox": outbox.prune,
}


def _prune(console: Console, options: Options) -> int:
    overdue = {
        "dead_letters" if dead_letter else state.value: number
        for (state, dead_letter), number in pruning.overdue().items()
    }
    number = sum(overdue.values())
    if options["dry_run"]:
        if console.as_json:
            console.json({"dry_run": True, "jobs": overdue})
        else:
            kinds = ", ".join(f"{grouped(count)} {kind}" for kind, count in overdue.items())
            text = _("Past their retention: %(kinds)s. Nothing was changed.")
            console.line(text % {"kinds": kinds or _("no jobs")})
        return OK
    if number > 1:
        text = ngettext(
            "Delete %(number)s job past its retention?",
            "Delete %(number)s jobs past their retention?",
            number,
        )
        ask(console, text % {"number": grouped(number)}, yes=options["yes"])
    deleted = {"jobs": 0}
    entry = audit_trail.record("jobs.pruned", object_type="job")
    try:
        _delete_overdue(console, deleted)
    finally:
        audit_trail.complete(entry, **deleted)
    console.progress("")
    if console.as_json:
        console.json(deleted)
    else:
        counts = ", ".join(_counted(name, number) for name, number in deleted.items())
        console.line(_("Deleted: %(counts)s.") % {"counts": counts})
    return OK


def _deleted(number: int) -> str:
    text = ngettext("%(number)s deleted", "%(number)s deleted", number)
    return text % {"number": grouped(number)}


def _counted(name: str, number: int) -> str:
    texts = {
        "jobs": _("%(number)s jobs"),
        "events": _("%(number)s events"),
        "bulk_operations": _("%(number)s bulk operations"),
        "audit_entries": _("%(number)s audit entries"),
        "outbox": _("%(number)s outbox"),
    }
    return texts[name] % {"number": grouped(number)}


def _delete_overdue(console: Console, deleted: dict[str, int]) -> None:
    """Delete what is past its retention, and count it in `deleted` as it goes."""
    while some := pruning.prune():
        deleted["jobs"] += some
        console.progress(_deleted(deleted["jobs"]))
    by_queue, before = pruning.QueuePruner(), deleted["jobs"]
    while by_queue.prune():
        deleted["jobs"] = before + by_queue.deleted
        console.progress(_deleted(deleted["jobs"]))
    for name, step in _OTHERS.items():
        deleted[name] = 0
        while some := step():
            deleted[name] += some
            if some < database.BATCH:
                break


def _states(text: str) -> tuple[State, ...]:
    names = [name for name in text.lower().split(",") if name]
    if not names or not {*names} <= {*State}:
        raise ArgumentTypeError(_("must be one of %(states)s") % {"states": ", ".join(State)})
    return tuple(dict.fromkeys(State(name) for name in names))


def _purge_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("queue", metavar="QUEUE", help=_("the name of the queue"))
    parser.add_argument(
        "--state",
        type=_states,
        required=True,
        metavar="A,B",
        help=_("delete jobs in these states; active ones cannot be purged"),
    )
    parser.add_argument(
        "--older-than",
        type=duration,
        metavar="AGE",
        help=_("only jobs that ended so long ago; for terminal states"),
    )
    add_confirmation(parser)


SUBCOMMANDS: Final = (
    Subcommand(
        name="purge",
        help=gettext_lazy("delete the jobs of a queue in some states"),
        description=gettext_lazy(
            "Delete jobs of a queue permanently, with their error histories. "
            "Running jobs continue, and\nthe queue and its configuration stay."
        ),
        examples="""\
  manage.py ojs purge email --state available,scheduled --dry-run
  manage.py ojs purge email --state completed --older-than 7d --yes""",
        add_arguments=_purge_arguments,
        run=_purge,
    ),
    Subcommand(
        name="prune",
        help=gettext_lazy("delete what is past its retention now"),
        description=gettext_lazy(
            "Delete finished jobs, events, bulk operations and rows of the "
            "outbox that are past their retention\n(KEEP_COMPLETED and so on). "
            "Workers do this all the time; use it where none runs, or when "
            "pruning\nis behind."
        ),
        examples=gettext_lazy("""\
  manage.py ojs prune --dry-run
  manage.py ojs prune --yes          from cron"""),
        add_arguments=add_confirmation,
        run=_prune,
    ),
)

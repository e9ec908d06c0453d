"""`dead-letters`: groups of dead letters, and the command that retries one."""

import shlex
from argparse import ArgumentParser
from typing import Final

from django_ojs.command_line.console import Console
from django_ojs.command_line.lists import ListColumn, column, write_list
from django_ojs.command_line.subcommand import OK, Options, Subcommand, add_limit
from django_ojs.formatting import absolute_time, grouped
from django_ojs.operations.jobs import dead_letter_groups, redaction, search_query
from django_ojs.operations.jobs.dead_letter_groups import Group
from django_ojs.spec.times import format_timestamp


def _dead_letters(console: Console, options: Options) -> int:
    limit: int = options["limit"]
    by_message = not redaction.hides("message")
    found = dead_letter_groups.groups(most=limit, by_message=by_message)
    if not write_list(
        console,
        "groups",
        _COLUMNS,
        found.groups,
        none="There are no dead letters.",
        groups_total=found.found,
        jobs_total=found.total,
        pruned_at=None if found.pruned_at is None else format_timestamp(found.pruned_at),
    ):
        return OK
    console.line()
    some = f" The newest {grouped(found.seen)} are grouped." if found.more else ""
    console.line(f"Dead letters: {grouped(found.total)}.{some}", "bold")
    if found.found > len(found.groups):
        values = {"count": grouped(len(found.groups)), "total": grouped(found.found)}
        console.line(
            f"The first {values['count']} of {values['total']} groups: --limit lists more."
        )
    if found.pruned_at is not None:
        values = {"time": absolute_time(found.pruned_at)}
        console.line(f"The oldest is pruned at {values['time']}.")
    for index, group in enumerate(found.groups):
        if search := _search(group):
            which = "largest group that a search can name" if index else "largest group"
            console.line(
                f"To retry the {which}: manage.py ojs retry --search {shlex.quote(search)}",
                "yellow",
            )
            break
    return OK


def _search(group: Group) -> str:
    """Return the search for the jobs of a group, or an empty text if no search can name them."""
    return "" if group.filter is None else search_query.render(group.filter)


_COLUMNS: Final[list[ListColumn[Group]]] = [
    ListColumn(name="jobs", value=lambda group: group.count, kind="number"),
    column("error_type"),
    column("message", "text"),
    column("type"),
    column("queue"),
    column("first", "time", drops=2),
    column("last", "time", drops=1),
    ListColumn(name="search", value=lambda group: _search(group) or None, only="json"),
]


def _arguments(parser: ArgumentParser) -> None:
    add_limit(parser, 20, "the number of groups (default: %(default)d)")


SUBCOMMANDS: Final = (
    Subcommand(
        name="dead-letters",
        help="show the dead letters by queue, type, error and message",
        description=(
            "The dead letters by queue, type, type of error and message without its numbers and "
            "quotations, the largest groups first, with the first and the last failure of each. "
            "--json also has the search that retries each. Of very many, only the newest are "
            "grouped."
        ),
        examples="  manage.py ojs dead-letters\n"
        "  manage.py ojs jobs is:dead error_type:smtplib.SMTPServerDisconnected\n"
        "  manage.py ojs retry is:dead error_type:smtplib.SMTPServerDisconnected",
        add_arguments=_arguments,
        run=_dead_letters,
    ),
)

"""The arguments that select jobs: the search of the admin, and options for queue and state."""

from argparse import ArgumentParser
from dataclasses import replace
from typing import Final

from django.core.management.base import CommandError

from django_ojs.command_line.subcommand import FAILED, Options, usage_error
from django_ojs.handlers import positions
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.operations.jobs.search_access import permitted
from django_ojs.operations.jobs.search_hints import unknown_name
from django_ojs.operations.jobs.search_query import parse, parse_states, qualifiers
from django_ojs.spec.errors import OJSError
from django_ojs.spec.states import State

_WORDS: Final = "\n".join(f"  {example}" for example in qualifiers().values())
_SEARCH_HELP: Final = f"""\
SEARCH is the search of the admin: the id of a job, the beginning of a type, or words such as

{_WORDS}

Quote a search that has spaces, < or > for the shell: 'error:"card was declined" created:<2h'.
"""


def with_search_help(description: str) -> str:
    """Return the description of a subcommand with the help about searches."""
    return f"{description}\n\n{_SEARCH_HELP}"


def add_search(parser: ArgumentParser) -> None:
    """Add the arguments that select jobs."""
    parser.add_argument("words", nargs="*", metavar="SEARCH", help="words of a search; see below")
    parser.add_argument("--search", metavar="SEARCH", help="the same, as one argument")
    parser.add_argument("--queue", metavar="NAME", help="only jobs of this queue")
    states = ", ".join(State)
    parser.add_argument(
        "--state",
        metavar="A,B",
        help=f"only jobs in these states: {states}",
    )


def filter_of(options: Options, *, required: bool = False) -> JobFilter:
    """Return the filter of the arguments.

    A word that cannot be parsed is an error, and so is a queue that does not exist. With
    `required`, a search that selects every job is an error too.
    """
    text = " ".join([*options["words"], options["search"] or ""]).strip()
    search = permitted(parse(text), payload=True, positions=positions)
    which = search.filter
    if which is None:
        raise usage_error(" ".join(search.errors))
    if options["state"] is not None:
        which = replace(which, states=_states(options["state"], which), states_excluded=None)
    if options["queue"] is not None:
        if which.queue not in (None, options["queue"]):
            raise usage_error("The queue is given twice: in the search, and by --queue.")
        try:
            which = replace(which, queue=options["queue"])
        except OJSError as error:
            raise usage_error(error.message) from None
    if required and which.empty:
        raise usage_error(
            "Name the jobs: by id, or by a search such as state:discarded "
            "queue:email. A state alone selects all jobs in it."
        )
    if hint := unknown_name(which):
        raise CommandError(hint, returncode=FAILED)
    return which


def has_only_ids(which: JobFilter) -> bool:
    """Whether the filter names jobs one by one, and nothing else."""
    return bool(which.ids) and which == JobFilter(ids=which.ids)


def _states(text: str, which: JobFilter) -> tuple[State, ...]:
    try:
        states = parse_states(text)
    except ValueError as error:
        raise usage_error(f"--state: {error}") from None
    if which.states and which.states != states:
        raise usage_error("The state is given twice: in the search, and by --state.")
    return states

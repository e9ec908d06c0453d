"""manage.py ojs: parse the arguments and run a subcommand of django_ojs.command_line."""

from argparse import SUPPRESS, ArgumentParser, RawDescriptionHelpFormatter
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError

from django_ojs.command_line import (
    dead_letters,
    doctor,
    jobs,
    purge,
    queues,
    retry_and_cancel,
    stats,
    transfer,
    workers,
)
from django_ojs.command_line.console import Console, discard_output
from django_ojs.command_line.database_check import errors_in_words
from django_ojs.command_line.operator import operator
from django_ojs.command_line.subcommand import (
    FAILED,
    USAGE,
    Subcommand,
    check_texts,
)
from django_ojs.extension import Actor
from django_ojs.hooks import registry
from django_ojs.models import ActorKind
from django_ojs.operations.access.operator import acting

DESCRIPTION = """\
Operate background jobs from a shell: what the admin does, and a check of the whole system.

  manage.py ojs stats --watch                       queues and workers, live
  manage.py ojs jobs state:discarded queue:email    find jobs, as the search of the admin does
  manage.py ojs show ID --args                      one job, its runs and its arguments
  manage.py ojs retry is:dead queue:email           retry all jobs of a search
  manage.py ojs doctor                              what is wrong, why it matters, what to do

`manage.py ojs SUBCOMMAND --help` has the arguments and examples of each.
"""

EPILOG = """\
With --json, a subcommand writes JSON to the standard output, for programs. Progress and errors go
to the standard error. A terminal gets colours; NO_COLOR turns them off.

Exit codes: 0 success; 1 a finding of `doctor`, or something failed; 2 wrong arguments, or a
question that was not answered with yes.
"""

#: The subcommands of the core.
_CORE: Final[tuple[Subcommand, ...]] = (
    *jobs.SUBCOMMANDS,
    *dead_letters.SUBCOMMANDS,
    *retry_and_cancel.SUBCOMMANDS,
    *queues.SUBCOMMANDS,
    *stats.SUBCOMMANDS,
    *workers.SUBCOMMANDS,
    *purge.SUBCOMMANDS,
    *transfer.SUBCOMMANDS,
    *doctor.SUBCOMMANDS,
)


def subcommands() -> dict[str, Subcommand]:
    """Return the subcommands by name: the core's, and those of the installed extensions."""
    return {each.name: each for each in (*_CORE, *registry.brought("subcommands", of=Subcommand))}


class Command(BaseCommand):
    help: Any = DESCRIPTION

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> Any:
        """Keep the layout of the help."""
        kwargs.setdefault("formatter_class", RawDescriptionHelpFormatter)
        kwargs.setdefault("epilog", EPILOG)
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="subcommand", metavar="SUBCOMMAND")
        for each in subcommands().values():
            sub = actions.add_parser(
                each.name,
                help=each.help,
                description=each.description,
                epilog=f"""\
examples:
{each.examples}""",
                formatter_class=RawDescriptionHelpFormatter,
            )
            each.add_arguments(sub)
            sub.add_argument("--json", action="store_true", help="write JSON, for programs")
            # Django's arguments are accepted after the subcommand as well as before it.
            for flag in ("--no-color", "--force-color", "--traceback"):
                sub.add_argument(flag, action="store_true", default=SUPPRESS, help=SUPPRESS)
            for name in ("--settings", "--pythonpath"):
                sub.add_argument(name, default=SUPPRESS, help=SUPPRESS)
            sub.add_argument("-v", "--verbosity", type=int, default=SUPPRESS, help=SUPPRESS)

    def handle(self, *, subcommand: str | None, **options: Any) -> None:
        """Run the subcommand; a code other than 0 ends the process with it."""
        if subcommand is None:
            self.print_help("manage.py", "ojs")
            raise SystemExit(USAGE)
        check_texts(options)
        console = Console(
            self,
            as_json=options["json"],
            no_color=options["no_color"],
            force_color=options["force_color"],
        )
        try:
            actor = Actor(kind=ActorKind.COMMAND, name=operator())
            with errors_in_words(), acting(actor):
                code = subcommands()[subcommand].run(console, options)
        except BrokenPipeError:
            # The reader, such as `head`, has ended: Python must not write to it at the exit either.
            discard_output()
            code = FAILED
        except KeyboardInterrupt:
            raise CommandError("Interrupted.") from None
        if code:
            raise SystemExit(code)

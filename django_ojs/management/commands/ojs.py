"""manage.py ojs: parse the arguments and run a subcommand of django_ojs.command_line."""

from argparse import SUPPRESS, ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, Final
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError
from django.db import Error
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs.command_line import (
    changes,
    cron,
    dead_letters,
    deletion,
    doctor,
    figures,
    jobs,
    limits,
    other_queues,
    queues,
    transfer,
    webhooks,
    workflows,
)
from django_ojs.command_line.console import Console, discard_output
from django_ojs.command_line.database_check import errors_in_words, unknown_alias
from django_ojs.command_line.operator import operator
from django_ojs.command_line.subcommand import (
    FAILED,
    USAGE,
    Subcommand,
    check_texts,
    usage_error,
)
from django_ojs.formatting import error_message, in_english
from django_ojs.models import ActorKind, Job
from django_ojs.operations.access import audit_trail
from django_ojs.operations.access.audit_trail import Actor
from django_ojs.spec.errors import OJSError
from django_ojs.spec.ids import parse_id
from django_ojs.storage import all_databases, database, find_database

DESCRIPTION = gettext_lazy("""\
Operate background jobs from a shell: what the admin does, and a check of the whole system.

  manage.py ojs stats --watch                       queues and workers, live
  manage.py ojs jobs state:discarded queue:email    find jobs, as the search of the admin does
  manage.py ojs show ID --args                      one job, its runs and its arguments
  manage.py ojs retry is:dead queue:email           retry all jobs of a search
  manage.py ojs workflows list --state running      the workflows, and how far each is
  manage.py ojs limits list                         the limit keys that hold jobs back
  manage.py ojs webhooks list                       the webhooks, and which are disabled
  manage.py ojs cron list                           the schedules, and when each runs next
  manage.py ojs doctor                              what is wrong, why it matters, what to do

`manage.py ojs SUBCOMMAND --help` has the arguments and examples of each.
""")

EPILOG = gettext_lazy("""\
With --json, a subcommand writes JSON to the standard output, for programs. Progress and errors go
to the standard error. Colours need rich (`pip install django-ojs[cli]`) and a terminal; NO_COLOR
turns them off.

Exit codes: 0 success; 1 a finding of `doctor`, or something failed; 2 wrong arguments, or a
question that was not answered with yes.
""")

SUBCOMMANDS: Final[dict[str, Subcommand]] = {
    each.name: each
    for each in (
        *figures.SUBCOMMANDS,
        *jobs.SUBCOMMANDS,
        *dead_letters.SUBCOMMANDS,
        *changes.SUBCOMMANDS,
        *workflows.SUBCOMMANDS,
        *queues.SUBCOMMANDS,
        *limits.SUBCOMMANDS,
        *webhooks.SUBCOMMANDS,
        *cron.SUBCOMMANDS,
        *deletion.SUBCOMMANDS,
        *transfer.SUBCOMMANDS,
        *other_queues.SUBCOMMANDS,
        *doctor.SUBCOMMANDS,
    )
}


#: Where jobs are in several databases: the subcommands about all of them together, and those about
#: the first one unless `--database` names another. The others run in each.
_TOGETHER: Final = frozenset({"stats", "workers"})
_IN_ONE: Final = frozenset({"cron", "import", "import-from"})


def _run(subcommand: Subcommand, console: Console, options: Mapping[str, Any]) -> int:
    """Run a subcommand in the databases that it concerns, and return the highest exit code."""
    known, wanted = database.aliases(), options["database"]
    if wanted is not None and wanted not in known:
        raise usage_error(unknown_alias(wanted))
    if not database.is_to_be_chosen():
        return subcommand.run(console, options)
    if wanted is not None:
        with database.using(wanted):
            return subcommand.run(console, options)
    if subcommand.name in _TOGETHER:
        with all_databases.together() as missing:
            code = subcommand.run(console, options)
        for alias in missing:
            console.note(
                _("Not included: the database %(alias)s does not respond.") % {"alias": alias}
            )
        return FAILED if missing else code
    if subcommand.name in _IN_ONE:
        return subcommand.run(console, options)
    keys = _jobs_of(options)
    if len(keys) == 1:
        with find_database.database_of(Job, keys[0]):
            return subcommand.run(console, options)
    if (keys and subcommand in changes.SUBCOMMANDS) or options.get("ids"):
        # Each job, or workflow, is found where it is.
        return subcommand.run(console, options)
    if options["json"]:
        raise usage_error(
            _("With --json, --database must name one of %(names)s.") % {"names": ", ".join(known)}
        )
    return _run_in_each(subcommand, console, options)


def _run_in_each(subcommand: Subcommand, console: Console, options: Mapping[str, Any]) -> int:
    """Run a subcommand in one database after the other; an error in one does not stop the others.

    What the arguments name is changed where it is; a name that only some of them know is no error.
    Raises the first error if all have one.
    """
    codes: list[int] = []
    errors: list[Exception] = []
    found = _names_by_database(subcommand, console, options)
    for alias in database.aliases():
        names = found.get(alias)
        if names == []:
            continue
        console.note(_("Database %(alias)s:") % {"alias": alias})
        try:
            if isinstance(names, Error):
                raise names
            there = options if names is None else {**options, subcommand.names: names}
            with database.using(alias):
                codes.append(subcommand.run(console, there))
        except (CommandError, OJSError, Error) as error:
            errors.append(error)
            console.note(_text_of(error))
    if not codes:
        raise errors[0]
    only_unknown = all(getattr(error, "returncode", FAILED) == USAGE for error in errors)
    return max(codes) if only_unknown else max(FAILED, *codes)


def _names_by_database(
    subcommand: Subcommand, console: Console, options: Mapping[str, Any]
) -> dict[str, list[str] | Error]:
    """Return which of the names in the arguments each database has; {} without such names.

    Of one that does not respond, return its error. Raises the error of the subcommand for a name
    that none has, before anything is changed; where one does not respond, it may be there.
    """
    names = list(dict.fromkeys(options.get(subcommand.names) or ()))
    if not names:
        return {}
    found = find_database.each_result(
        lambda: {name: _problem_with(subcommand, options, name) for name in names}
    )
    asked = {alias: here for alias, here in found.items() if not isinstance(here, Error)}
    for name in names:
        problems = {alias: here[name] for alias, here in asked.items()}
        if None in problems.values():
            continue
        for alias, problem in problems.items():
            # Each suggests names of its database.
            console.note(_("Database %(alias)s:") % {"alias": alias})
            console.note(str(problem))
        if len(asked) == len(found):
            raise next(problem for problem in problems.values() if problem)
    return {
        alias: here if isinstance(here, Error) else [name for name in names if here[name] is None]
        for alias, here in found.items()
    }


def _problem_with(
    subcommand: Subcommand, options: Mapping[str, Any], name: str
) -> CommandError | None:
    """Return the error of a name that the current database does not have."""
    try:
        subcommand.find(options, name)
    except CommandError as error:
        return error
    return None


def _text_of(error: Exception) -> str:
    if isinstance(error, OJSError):
        return error_message(error)
    if isinstance(error, Error):
        return database.unavailable_reason(error)
    return str(error)


def _jobs_of(options: Mapping[str, Any]) -> list[UUID]:
    """Return the ids of the jobs that the arguments name, if they name nothing else."""
    named = [options["id"]] if options.get("id") else list(options.get("words") or [])
    try:
        return [parse_id(text) for text in named]
    except OJSError:
        return []


class Command(BaseCommand):
    help: Any = DESCRIPTION

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> Any:
        """Keep the layout of the help."""
        kwargs.setdefault("formatter_class", RawDescriptionHelpFormatter)
        kwargs.setdefault("epilog", EPILOG)
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="subcommand", metavar="SUBCOMMAND")
        for each in SUBCOMMANDS.values():
            sub = actions.add_parser(
                each.name,
                help=str(each.help),
                description=str(each.description),
                epilog=_("examples:\n%(examples)s") % {"examples": each.examples},
                formatter_class=RawDescriptionHelpFormatter,
            )
            each.add_arguments(sub)
            sub.add_argument(
                "--database",
                metavar="ALIAS",
                help=_("only this database of OJS['DATABASES'] (default: all)"),
            )
            sub.add_argument("--json", action="store_true", help=_("write JSON, for programs"))
            # Django's arguments, after the subcommand as well as before it.
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
            language = in_english() if options["json"] else nullcontext()
            with errors_in_words(), audit_trail.acting(actor), language:
                code = _run(SUBCOMMANDS[subcommand], console, options)
        except BrokenPipeError:
            # The reader, such as `head`, has ended; Python must not write to it at its exit either.
            discard_output()
            code = FAILED
        except KeyboardInterrupt:
            raise CommandError(_("Interrupted.")) from None
        if code:
            raise SystemExit(code)

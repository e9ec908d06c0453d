"""`index`: the optional indexes of searches in arguments and metadata."""

import threading
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from django.core.management.base import CommandError
from django.db import DatabaseError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs.command_line.console import NONE, Cell, Console, TableColumn
from django_ojs.command_line.subcommand import FAILED, OK, Options, Subcommand
from django_ojs.formatting import grouped
from django_ojs.operations.jobs import search_index
from django_ojs.operations.jobs.search_index import INDEXES, IndexStatus
from django_ojs.storage import database

#: Seconds between two questions for the progress.
_POLL: Final = 0.5

_COLUMNS: Final = (
    TableColumn(gettext_lazy("COLUMN")),
    TableColumn(gettext_lazy("INDEX")),
    TableColumn(gettext_lazy("STATE")),
    TableColumn(gettext_lazy("MIB"), right=True),
)


def _index(console: Console, options: Options) -> int:
    columns: Sequence[str] = list(dict.fromkeys(options["columns"])) or list(INDEXES)
    if not search_index.is_possible():
        raise CommandError(
            _(
                "%(database)s has no index on what JSON contains, so there is none to create. "
                "Searches read the jobs; the admin searches all of them in the background."
            )
            % {"database": database.connection().display_name}
        )
    if options["create"] or options["drop"]:
        _reject_while_built(columns)
    for column in columns:
        if options["create"]:
            _create(console, column)
        elif options["drop"]:
            search_index.drop(column)
    found = [each for each in search_index.status() if each.column in columns]
    _show(console, found)
    return FAILED if any(each.is_valid is False and not each.phase for each in found) else OK


def _reject_while_built(columns: Sequence[str]) -> None:
    for each in search_index.status():
        if each.column in columns and each.phase:
            raise CommandError(
                _("Another session is creating %(index)s (%(state)s). Wait until it has ended.")
                % {"index": each.name, "state": _state(each).text}
            )


def _create(console: Console, column: str) -> None:
    (before,) = (each for each in search_index.status() if each.column == column)
    if before.is_valid:
        return
    try:
        with _progress(console, column):
            search_index.create(column)
    except DatabaseError as error:
        reason = str(error).partition("\n")[0]
        raise CommandError(
            _(
                "%(index)s was not created: %(reason)s. Run the same command again when that is "
                "solved; it needs the role that owns the table ojs_job."
            )
            % {"index": INDEXES[column], "reason": reason}
        ) from error


@contextmanager
def _progress(console: Console, column: str) -> Iterator[None]:
    """Show on a terminal how far the creation of an index is, which another thread asks for."""
    over = threading.Event()

    def watch() -> None:
        try:
            while not over.wait(_POLL):
                for each in search_index.status():
                    if each.column == column and each.phase:
                        console.progress(f"{each.name}: {_state(each).text}")
        except DatabaseError:
            pass  # The index is created without a progress.
        finally:
            database.connection().close()

    thread = threading.Thread(target=watch, name="ojs-index-progress", daemon=True)
    if console.shows_progress:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if console.shows_progress:
            thread.join()
            console.progress("")


def _state(index: IndexStatus) -> Cell:
    if index.phase:
        if index.share is None:
            return Cell(index.phase, "blue")
        return Cell(f"{index.phase}, {index.share:.0%}", "blue")
    if index.is_valid is None:
        return Cell(_("none"))
    if index.is_valid:
        return Cell(_("ready"), "green")
    return Cell(_("not valid: create it again"), "red")


def _show(console: Console, found: Sequence[IndexStatus]) -> None:
    if console.as_json:
        console.json(
            {
                "indexes": [
                    {
                        "column": each.column,
                        "index": each.name,
                        "valid": each.is_valid,
                        "bytes": each.size,
                        "phase": each.phase,
                        "share": each.share,
                    }
                    for each in found
                ]
            }
        )
        return
    rows: list[list[Cell | str]] = [
        [
            each.column,
            each.name,
            _state(each),
            NONE if each.is_valid is None else grouped(each.size >> 20),
        ]
        for each in found
    ]
    console.table(_COLUMNS, rows)


def _column(text: str) -> str:
    if text not in INDEXES:
        raise ArgumentTypeError(_("must be args or meta"))
    return text


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "columns",
        nargs="*",
        type=_column,
        metavar="COLUMN",
        help=_("args or meta (default: both)"),
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument(
        "--create",
        action="store_true",
        help=_("create the indexes that there are not, and those again that are not valid"),
    )
    action.add_argument("--drop", action="store_true", help=_("drop the indexes"))


SUBCOMMANDS: Final = (
    Subcommand(
        name="index",
        help=gettext_lazy("the optional indexes of searches in arguments and metadata"),
        description=gettext_lazy(
            """\
Show, create or drop the indexes of searches in args and meta (PostgreSQL). With one, a search for a
value that few jobs have finds all of them at once; without it, a search reads the jobs.

Each enqueue and each run of a job also writes to these indexes, and they need space: see
docs/explanation/admin-at-size.md for the price. Creating one takes minutes on a large table and
locks out no writer. If it is interrupted, run the command again."""
        ),
        examples="""\
  manage.py ojs index
  manage.py ojs index --create
  manage.py ojs index args --drop""",
        add_arguments=_arguments,
        run=_index,
    ),
)

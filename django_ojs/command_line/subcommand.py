"""What a subcommand of `manage.py ojs` is, and its exit codes."""

import re
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Any, Final
from uuid import UUID

from django.core.management.base import CommandError

from django_ojs.command_line.console import Console
from django_ojs.formatting import grouped
from django_ojs.spec import times
from django_ojs.spec.errors import OJSError
from django_ojs.spec.ids import parse_id
from django_ojs.spec.suggestions import nearest

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2

Options = Mapping[str, Any]

#: How many names a message about an unknown name lists.
_LISTED: Final = 10

#: Arguments that are paths, which may contain any bytes.
_PATHS: Final = frozenset({"file", "settings", "pythonpath"})
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]").search


@dataclass(frozen=True, kw_only=True, slots=True)
class Subcommand:
    """A subcommand: its texts, its arguments, and the function that runs it.

    `run` returns the exit code. `examples` are lines of the epilog.
    """

    name: str
    help: str
    description: str
    examples: str
    add_arguments: Callable[[ArgumentParser], object]
    run: Callable[[Console, Options], int]


def usage_error(message: str) -> CommandError:
    """Return the error for arguments that are wrong; it ends the command with exit code 2."""
    return CommandError(message, returncode=USAGE)


def check_texts(options: Options) -> None:
    """Raise a usage error for an argument whose bytes are not text, unless it is a path.

    Python decodes such bytes to lone surrogates, which no database takes.
    """
    for name, value in options.items():
        texts = value if isinstance(value, list) else [value]
        for text in texts:
            if name not in _PATHS and isinstance(text, str) and _LONE_SURROGATE(text):
                raise usage_error(f"An argument is no text in the encoding of this shell: {name}.")


def parsed_ids(texts: Iterable[str], *, unnamed: str, prefix: str = "") -> list[UUID]:
    """Parse ids, and leave out repeated ones. `unnamed` is the error if there is no id."""
    try:
        found = list(dict.fromkeys(parse_id(text.removeprefix(prefix)) for text in texts))
    except OJSError as error:
        raise usage_error(error.message) from None
    if not found:
        raise usage_error(unnamed)
    return found


def unknown_name(
    name: str,
    known: Collection[str],
    *,
    none: str,
    nothing_like_it: str,
    near: str,
    of_many: str = "",
    total: int = 0,
) -> CommandError:
    """Return the error for a name that is not known, which is probably misspelt.

    `none` is its text if there are no known names, and `nothing_like_it` if no known name is
    similar; `near` if one is, and `of_many` if there are too many names to list them. The texts may
    have `name`, `near`, `known` and `number`, which is `total` if `known` has only some of the
    names.
    """
    found = nearest(name, known)
    number = max(total, len(known))
    text, listed = nothing_like_it, ", ".join(islice(known, _LISTED))
    if number > _LISTED and of_many:
        text = of_many
    elif number > _LISTED:
        listed += ", …"
    if found is not None:
        text = near
    values = {"name": name, "near": found, "known": listed, "number": grouped(number)}
    return usage_error((text if known else none) % values)


def add_confirmation(parser: ArgumentParser) -> None:
    """Add the arguments of a subcommand that changes several jobs."""
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would change, and change nothing"
    )
    parser.add_argument(
        "--yes",
        action="store_true",
        help="do not ask; needed for more than one job where stdin is not a terminal",
    )


def add_limit(parser: ArgumentParser, default: int, text: str) -> None:
    """Add the argument for the length of a list; its help is `text` with the default."""
    parser.add_argument(
        "--limit", type=whole_number, default=default, metavar="N", help=text % {"default": default}
    )


def whole_number(text: str) -> int:
    """Parse a whole number from 1 to 1,000,000."""
    digits = text.lstrip("0") or "0"
    if not (text.isascii() and text.isdecimal() and 1 <= int(digits[:10]) <= 1_000_000):
        raise ArgumentTypeError("must be a whole number from 1 to 1000000")
    return int(digits)


def duration(text: str) -> timedelta:
    """Parse a duration that is longer than zero."""
    try:
        found = times.parse_duration(text, "it")
    except OJSError:
        found = timedelta(0)
    if not found:
        raise ArgumentTypeError("must be a duration such as 90s, 12h, 7d or P30D")
    return found

"""`limits`: list the limit keys and what they use; show, pause and resume them."""

from argparse import ArgumentParser
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from django.utils import timezone

from django_ojs.command_line.console import Console
from django_ojs.command_line.lists import ListColumn, as_json, column, write_details, write_list
from django_ojs.command_line.subcommand import (
    OK,
    Options,
    Subcommand,
    add_limit,
    duration,
    unknown_name,
    usage_error,
)
from django_ojs.extensions.limits import limit_keys
from django_ojs.extensions.limits.limit_key_use import KeyStatus
from django_ojs.formatting import absolute_time, grouped, limits_in_words
from django_ojs.operations.jobs.redaction import redacted_key
from django_ojs.operations.keyset import PageRequest
from django_ojs.spec.errors import NotFound, OJSError

#: How many known keys a message about an unknown one can suggest.
_MOST_NAMES: Final = 200


def shown_key(key: str) -> str:
    """Return a limit key without the arguments that ADMIN_REDACT hides."""
    return redacted_key(key, may_see=True)


def _known(options: Options) -> list[KeyStatus]:
    """Return the named keys. An unknown one is an error, because it is probably misspelt."""
    if not options["keys"]:
        raise usage_error("Name a limit key; `manage.py ojs limits list --all` lists them.")
    return [_get(key) for key in dict.fromkeys(options["keys"])]


def _get(key: str) -> KeyStatus:
    try:
        return limit_keys.get(key)
    except NotFound:
        # Keys with a part that ADMIN_REDACT hides are not suggested.
        found = limit_keys.listing(PageRequest(limit=_MOST_NAMES)).rows
        raise unknown_name(
            key,
            [each.key for each in found if shown_key(each.key) == each.key],
            none="No job has the limit key %(name)r. There are no limit keys.",
            nothing_like_it="No job has the limit key %(name)r. The keys are %(known)s.",
            near="No job has the limit key %(name)r. Did you mean %(near)s?",
        ) from None
    except OJSError as error:
        raise usage_error(error.message) from None


def _list(console: Console, options: Options) -> int:
    if options["keys"]:
        raise usage_error("`list` takes no keys: `manage.py ojs limits show KEY` shows one.")
    read = limit_keys.listing if options["all"] else limit_keys.restricted
    page = read(PageRequest(limit=options["limit"]))
    none = (
        "There are no limit keys."
        if options["all"]
        else "No limit key is at its limit, paused, overridden or dropping jobs; --all lists all."
    )
    total, capped = page.count()
    counted = {"total": total, "total_capped": capped}
    is_table = write_list(console, "limits", _COLUMNS, page.rows, none=none, **counted)
    if is_table and total > len(page.rows):
        console.line(
            f"The first {grouped(len(page.rows))} of {grouped(total)}: --limit lists more."
        )
    return OK


def _waiting(status: KeyStatus) -> str:
    most = limit_keys.MOST_WAITING
    if status.waiting > most:
        return f"more than {grouped(most)}"
    return grouped(status.waiting)


def _paused_until(status: KeyStatus) -> datetime | None:
    return status.row.paused_until if status.row is not None and status.use.is_paused else None


def _of_row(name: str) -> Callable[[KeyStatus], Any]:
    return lambda status: getattr(status.row, name, None) or None


def _of_override(name: str) -> Callable[[KeyStatus], Any]:
    return lambda status: (
        getattr(status.row, name) if status.row is not None and status.row.is_in_force else None
    )


_COLUMNS: Final[list[ListColumn[KeyStatus]]] = [
    ListColumn(name="key", value=lambda status: shown_key(status.key)),
    column("limits", "text", "policy", words=lambda status: limits_in_words(status.policy)),
    column("active", "number", "use.active"),
    ListColumn(
        name="waiting",
        value=lambda status: min(status.waiting, limit_keys.MOST_WAITING),
        words=_waiting,
        kind="number",
    ),
    ListColumn(
        name="waiting_capped",
        value=lambda status: status.waiting > limit_keys.MOST_WAITING,
        only="json",
    ),
    ListColumn(name="held_by", value=_of_row("limited_by"), drops=2),
    ListColumn(name="held_since", value=_of_row("limited_since"), kind="time", drops=3),
    ListColumn(name="paused_until", value=_paused_until, kind="time", drops=1),
    ListColumn(name="override", value=_of_override("override"), only="json"),
    ListColumn(name="override_until", value=_of_override("override_until"), only="json"),
    ListColumn(name="rescheduled_until", value=_of_row("rescheduled_until"), only="json"),
    ListColumn(name="dropped", value=lambda status: getattr(status.row, "dropped", 0), only="json"),
    ListColumn(name="dropped_at", value=_of_row("dropped_at"), only="json"),
]


def _show(console: Console, options: Options) -> int:
    found = _known(options)
    if console.as_json:
        console.json({"limits": [as_json(_COLUMNS, each) for each in found]})
        return OK
    for status in found:
        _show_one(console, status)
    return OK


def _show_one(console: Console, status: KeyStatus) -> None:
    row, until = status.row, _paused_until(status)
    console.line(shown_key(status.key), "bold")
    lines = [
        ("limits", limits_in_words(status.policy) or "none"),
        ("active", grouped(status.use.active)),
        ("waiting", _waiting(status)),
    ]
    if row is not None:
        if row.limited_since is not None:
            values = {"limit": row.limited_by, "time": absolute_time(row.limited_since)}
            lines.append(("held by", f"{values['limit']}, since {values['time']}"))
        if row.is_in_force:
            text = limits_in_words(row.override)
            if row.override_until is not None:
                text = f"{text}, until {absolute_time(row.override_until)}"
            lines.append(("override", text))
        if row.rescheduled_until is not None and row.rescheduled_until > timezone.now():
            lines.append(("rescheduled until", absolute_time(row.rescheduled_until)))
        if row.dropped_at is not None:
            values = {"number": grouped(row.dropped), "time": absolute_time(row.dropped_at)}
            lines.append(("dropped", f"{values['number']}, the last at {values['time']}"))
    if until is not None:
        lines.append(("paused until", absolute_time(until)))
    write_details(console, lines)
    if until is not None and shown_key(status.key) == status.key:
        console.line(
            f"To end the pause: manage.py ojs limits resume {status.key}",
            "yellow",
        )


def _pause(console: Console, options: Options) -> int:
    keys = [each.key for each in _known(options)]
    try:
        limit_keys.pause(keys, options["for"])
    except OJSError as error:
        raise usage_error(error.message) from None
    found = [limit_keys.get(key) for key in keys]
    if console.as_json:
        console.json({"limits": [as_json(_COLUMNS, each) for each in found]})
        return OK
    for status in found:
        # The pause may be an earlier one that lasts longer, and a very short one may be over.
        until = _paused_until(status)
        text = (
            f"{shown_key(status.key)} is not paused."
            if until is None
            else f"No job of {shown_key(status.key)} starts before {absolute_time(until)}."
        )
        console.line(text)
    return OK


def _resume(console: Console, options: Options) -> int:
    found = _known(options)
    keys = [each.key for each in found]
    limit_keys.open_now(keys)
    if console.as_json:
        console.json({"limits": [as_json(_COLUMNS, limit_keys.get(key)) for key in keys]})
        return OK
    for before in found:
        text = (
            f"The pause of {shown_key(before.key)} is over: its jobs start as its limits allow."
            if before.use.is_paused
            else f"{shown_key(before.key)} is not paused."
        )
        console.line(text)
    return OK


_ACTIONS: Final = {"list": _list, "show": _show, "pause": _pause, "resume": _resume}


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=_ACTIONS, help="what to do")
    parser.add_argument("keys", nargs="*", metavar="KEY", help="a limit key")
    parser.add_argument(
        "--all",
        action="store_true",
        help="with list: all keys, not only those at a limit, paused, overridden or dropping jobs",
    )
    add_limit(parser, 50, "with list: the number of keys (default: %(default)d)")
    parser.add_argument(
        "--for",
        type=duration,
        default=limit_keys.DEFAULT_PAUSE,
        metavar="DURATION",
        help="with pause: how long, such as 30m or PT2H (default: 1h)",
    )


SUBCOMMANDS: Final = (
    Subcommand(
        name="limits",
        help="list limit keys and what they use, show, pause and resume them",
        description=(
            "list: the limit keys at their limit, paused, overridden or with dropped jobs: their "
            "limits, running and waiting jobs. show: one key, with its override and what became of "
            "its jobs. pause: no job of these keys starts for a time, in any queue; running ones "
            "continue. resume: end the pause now, even one that a handler asked for. The admin and "
            "the HTTP API override the limits of a key."
        ),
        examples="  manage.py ojs limits list\n"
        "  manage.py ojs limits show type:carrier.track\n"
        "  manage.py ojs limits pause type:carrier.track --for 30m\n"
        "  manage.py ojs limits resume type:carrier.track",
        add_arguments=_arguments,
        run=lambda console, options: _ACTIONS[options["action"]](console, options),
    ),
)

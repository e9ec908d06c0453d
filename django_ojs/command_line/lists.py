"""The writer of lists: a table for a person, or the same rows as JSON for a program."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any, Final, Generic, Literal, TypeVar
from uuid import UUID

from django.utils import timezone

from django_ojs.command_line.console import NONE, Cell, Console, TableColumn
from django_ojs.command_line.subcommand import FAILED, OK, Options, usage_error
from django_ojs.formatting import duration, grouped
from django_ojs.operations.keyset import Page, PageRequest
from django_ojs.spec.errors import InvalidRequest, OJSError
from django_ojs.spec.times import elapsed, format_timestamp

Row = TypeVar("Row")
Words = Callable[[Any], str] | None

#: The colour of each state, whether of a job, a queue, a worker or something else.
_STYLES: Final = {
    "active": "blue",
    "running": "blue",
    "completed": "green",
    "delivered": "green",
    "dead": "red",
    "discarded": "red",
    "failed": "red",
    "stale": "bold red",
    "disabled": "yellow",
    "draining": "yellow",
    "paused": "yellow",
    "quiet": "yellow",
    "ready": "yellow",
    "retryable": "yellow",
}


#: What the values of a column are, which decides how a table shows them. A `name` is a name, or
#: another text that must not be cut. `names` that do not fit are counted. A `text` may be cut. A
#: `job` is the id of a job, shown by its beginning; an `id` is another id, which may be cut at its
#: beginning. A `time` is shown as how long ago it was, or how long it is until then. A `duration`
#: is the time since a moment. A `state` is shown in its colour.
Kind = Literal["name", "names", "text", "job", "id", "number", "time", "duration", "state"]

#: The kinds whose values are cut if the terminal is too narrow.
_SHRINKS: Final[Mapping[Kind, Literal["text", "id", "names"]]] = {
    "text": "text",
    "id": "id",
    "names": "names",
}

#: How many digits of a job's id a table on a terminal shows, if these tell the jobs apart.
_SHORT_ID: Final = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class ListColumn(Generic[Row]):
    """A column of a list: a member of each object in JSON, and a column of the table.

    The heading is the name, unless `title` is given. `words` returns what a person reads, if the
    kind does not decide it. For `drops`, see `TableColumn`.
    """

    name: str
    value: Callable[[Row], Any]
    kind: Kind = "name"
    words: Words = None
    title: str = ""
    only: Literal["json", "table"] | None = None
    drops: int = 0


def column(
    name: str,
    kind: Kind = "name",
    path: str = "",
    *,
    title: str = "",
    words: Words = None,
    drops: int = 0,
) -> ListColumn[Any]:
    """Return the column of the attribute with this name, or at this path from a row."""
    return ListColumn(
        name=name, value=attrgetter(path or name), kind=kind, title=title, words=words, drops=drops
    )


def members(names: str, *, of: str = "") -> list[ListColumn[Any]]:
    """Return columns that only JSON has: attributes of a row, or of its attribute `of`."""
    start = f"{of}." if of else ""
    return [
        ListColumn(name=name, value=attrgetter(start + name), only="json") for name in names.split()
    ]


def read_page(options: Options, read: Callable[[PageRequest], Page[Row]]) -> Page[Row]:
    """Read the page of a list that `--limit` and `--after` select."""
    try:
        return read(PageRequest(limit=options["limit"], cursor=options["after"]))
    except InvalidRequest:
        raise usage_error("--after must be the `next` of the same list.") from None


def write_list(
    console: Console,
    name: str,
    columns: Sequence[ListColumn[Row]],
    rows: Sequence[Row],
    *,
    none: str,
    **more: Any,
) -> bool:
    """Write rows as a table, or the text `none` if there are none. For a program, write JSON.

    The JSON has the rows under `name`, beside `more`. Return whether there is a table, so that the
    caller can write lines below it that only a person reads.
    """
    if console.as_json:
        console.json({name: [as_json(columns, row) for row in rows], **more})
    elif rows:
        write_table(console, columns, rows)
    else:
        console.line(none)
    return bool(rows) and not console.as_json


def act_on_each(
    console: Console,
    name: str,
    things: Mapping[str, Row],
    act: Callable[[Row], tuple[dict[str, Any], str]],
) -> int:
    """Act on each of the named things. If one fails, write its error and continue with the others.

    `act` returns what JSON has of a thing, and what a person reads. Return the exit code.
    """
    results: dict[str, dict[str, Any]] = {}
    code = OK
    for key, thing in things.items():
        try:
            results[key], text = act(thing)
        except OJSError as error:
            code = FAILED
            results[key] = {"error": error.message, **error.details}
            console.note(f"{key}: {error.message}")
            continue
        if not console.as_json:
            console.line(text)
    if console.as_json:
        console.json({name: results})
    return code


def as_json(columns: Iterable[ListColumn[Row]], row: Row) -> dict[str, Any]:
    """Return a row as the object that JSON has for it."""
    return {each.name: _plain(each.value(row)) for each in columns if each.only != "table"}


def write_table(console: Console, columns: Sequence[ListColumn[Row]], rows: Iterable[Row]) -> None:
    """Write rows as a table."""
    shown, rows = [each for each in columns if each.only != "json"], list(rows)
    now = timezone.now()
    # A program that reads the table through a pipe gets whole ids.
    short = _short_ids(shown, rows) if console.is_terminal else {}
    console.table(
        [
            TableColumn(
                each.title or each.name.replace("_", " ").upper(),
                right=each.kind in ("number", "duration"),
                shrinks=_SHRINKS.get(each.kind, ""),
                drops=each.drops,
            )
            for each in shown
        ],
        [[_cell(each, row, now, short) for each in shown] for row in rows],
    )


def _short_ids(columns: Sequence[ListColumn[Row]], rows: Sequence[Row]) -> dict[Any, str]:
    """Return the beginnings of the ids of jobs, long enough to tell the jobs apart."""
    ids = {each.value(row) for each in columns if each.kind == "job" for row in rows} - {None}
    for length in range(_SHORT_ID, len(str(UUID(int=0)))):
        short = {key: str(key)[:length].rstrip("-") for key in ids}
        if len(set(short.values())) == len(short):
            return short
    return {}


def write_details(console: Console, lines: Iterable[tuple[str, object]]) -> None:
    """Write what is known of one thing, one line for each name that has a value."""
    known = [(name, str(value)) for name, value in lines if value]
    width = max(10, *(len(name) for name, _value in known))
    for name, value in known:
        console.line(f"  {name:<{width}} {value}", _style(value) if name == "state" else "")


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return format_timestamp(value)
    return str(value) if isinstance(value, UUID) else value


def _cell(column: ListColumn[Row], row: Row, now: datetime, short: Mapping[Any, str]) -> Cell:
    value = column.value(row)
    if column.kind == "job":
        value = short.get(value, value)
    text = column.words(row) if column.words else _text(column.kind, value, now)
    return Cell(text or NONE, _style(value) if column.kind == "state" else "")


def _style(state: object) -> str:
    return _STYLES.get(str(state).partition(" ")[0], "")


def _text(kind: Kind, value: Any, now: datetime) -> str:
    if value is None:
        return NONE
    if kind == "number":
        return f"{value:.1f}" if isinstance(value, float) else grouped(value)
    if kind == "time":
        return ago(value, now)
    if kind == "duration":
        return age(value, now)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def age(since: datetime | None, now: datetime) -> str:
    """Return how long ago a time was, or "in" and how long it is until a future time."""
    if since is None:
        return NONE
    if since > now:
        return f"in {short_duration(elapsed(now, since).total_seconds())}"
    return short_duration(elapsed(since, now).total_seconds())


def ago(moment: datetime | None, now: datetime) -> str:
    """Return how long ago a time was, in words, or how long it is until a future time."""
    text = age(moment, now)
    return text if moment is None or moment > now else f"{text} ago"


def short_duration(seconds: float) -> str:
    """Return a duration in its two largest units."""
    return duration(seconds, gap="")

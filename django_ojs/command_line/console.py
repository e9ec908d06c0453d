"""The output of the subcommands: tables and lines for a person, or JSON for a program.

On a terminal, tables fit its width and have colours; otherwise they are aligned text. Values of
clients are written without their control characters.
"""

import os
import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal, NamedTuple

from django.core.management.base import BaseCommand, CommandError

from django_ojs.spec import json

#: Shown in place of a missing value.
NONE: Final = "-"

#: The spaces between two columns, the width to which a column shrinks before others are left out,
#: and the width to which it shrinks after that.
_GAP, _NARROW, _NARROWEST = 2, 20, 6

_NOT_ASCII: Final = re.compile("[^\\x00-\\x7f]+")

#: Enter and leave the alternate screen of the terminal, with the cursor hidden and long lines cut.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h\x1b[?1049l"
_HOME, _CLEAR_LINE, _CLEAR_REST = "\x1b[H", "\x1b[K", "\x1b[J"


#: The terminal's codes for the words that a style may have.
_CODES: Final = {"bold": "1", "red": "31", "green": "32", "yellow": "33", "blue": "34"}


class Cell(NamedTuple):
    """A value of a table, with a style, such as "bold red"."""

    text: str
    style: str = ""


class TableColumn(NamedTuple):
    """A column of a table.

    If the terminal is too narrow, columns without a value are left out, then values of columns that
    shrink are cut, then the columns with the highest `drops` are left out; a column with 0 stays. A
    cut text keeps its beginning, and a cut id its end. Names that do not fit are counted.
    """

    title: str
    right: bool = False
    shrinks: Literal["", "text", "id", "names"] = ""
    drops: int = 0


class Console:
    """Writes to the streams of a command."""

    def __init__(
        self,
        command: BaseCommand,
        *,
        as_json: bool = False,
        no_color: bool = False,
        force_color: bool = False,
    ) -> None:
        self.as_json = as_json
        self._out, self._err = command.stdout, command.stderr
        self.is_terminal = self._out.isatty()
        self._has_colours = (self.is_terminal or force_color) and not (
            no_color or os.environ.get("NO_COLOR")
        )
        self._frame: list[str] | None = None

    def json(self, value: Any) -> None:
        """Write a document in one line."""
        self._write(f"{json.dumps(value)}\n", otherwise=_escaped)

    def line(self, text: str = "", style: str = "") -> None:
        """Write a line."""
        self._write(f"{self._styled(printable(text), style)}\n")

    def prose(self, text: str, style: str = "", *, indent: int = 0) -> None:
        """Write a text in one line, or in several with an indent if the terminal is too narrow."""
        width = shutil.get_terminal_size().columns if self.is_terminal else len(text) or 1
        # A word is not cut: it may be a name, or something to copy.
        for line in textwrap.wrap(
            printable(text),
            width,
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
        ):
            self.line(line, style)

    def note(self, text: str) -> None:
        """Write a line that is not part of the result, to stderr."""
        self._err.write(printable(text), ending="\n")

    @property
    def shows_progress(self) -> bool:
        """Whether stderr is a terminal."""
        return bool(self._err.isatty())

    def progress(self, text: str) -> None:
        """Show how far a long operation is, if stderr is a terminal. An empty text ends it."""
        if self.shows_progress:
            self._err.write(f"\r{text}{_CLEAR_LINE}", ending="")
            self._err.flush()

    def table(self, columns: Sequence[TableColumn], rows: Sequence[Sequence[Cell | str]]) -> None:
        """Write rows under a head with the titles of the columns."""
        titles = [Cell(column.title, "bold") for column in columns]
        cells = [titles, *([_cell(value) for value in row] for row in rows)]
        widths = _widths(columns, cells, fit=self.is_terminal)
        for row in cells:
            aligned = [self._aligned(columns[n], row[n], width) for n, width in widths.items()]
            self._write((" " * _GAP).join(aligned).rstrip() + "\n")

    def _aligned(self, column: TableColumn, cell: Cell, width: int) -> str:
        text = cell.text if len(cell.text) <= width else _cut(cell.text, width, column.shrinks)
        space, styled = " " * (width - len(text)), self._styled(text, cell.style)
        return space + styled if column.right else styled + space

    def _styled(self, text: str, style: str) -> str:
        if not (style and self._has_colours):
            return text
        codes = ";".join(_CODES[word] for word in style.split())
        return f"\x1b[{codes}m{text}\x1b[0m"

    def confirmed(self, question: str, *, yes: bool) -> bool | None:
        """Ask whether to continue. Return None if there is no terminal to ask on."""
        if yes:
            return True
        if not sys.stdin.isatty():
            return None
        self._err.write(f"{printable(question)} [y/N] ", ending="")
        self._err.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    @contextmanager
    def screen(self) -> Iterator[None]:
        """On a terminal, let each frame replace the last one, and restore the screen at the end."""
        if self.as_json or not self.is_terminal:
            yield
            return
        self._write(_ENTER)
        try:
            yield
        finally:
            self._write(_LEAVE)

    @contextmanager
    def frame(self) -> Iterator[None]:
        """Write what the block writes at once, in place of the frame before."""
        self._frame = []
        try:
            yield
        finally:
            lines, self._frame = "".join(self._frame).splitlines(), None
            if self.as_json or not self.is_terminal:
                self._write("".join(f"{line}\n" for line in lines))
            else:
                shown = lines[: shutil.get_terminal_size().lines - 1]
                text = "".join(f"{line}{_CLEAR_LINE}\n" for line in shown)
                self._write(f"{_HOME}{text}{_CLEAR_REST}")

    def _write(self, text: str, otherwise: Callable[[str], str] | None = None) -> None:
        """Write a text, or the result of `otherwise` if the output cannot encode some characters.

        Without `otherwise`, each such character becomes a question mark.
        """
        if self._frame is not None:
            self._frame.append(text)
            return
        try:
            try:
                self._out.write(text, ending="")
            except UnicodeEncodeError as error:
                # The encoding may be ASCII, by PYTHONIOENCODING, or ISO 8859, by the locale.
                safe = text.encode(error.encoding, "replace").decode(error.encoding)
                self._out.write(otherwise(text) if otherwise else safe, ending="")
            self._out.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            # The disk may be full, for example.
            discard_output()
            raise CommandError(f"The output cannot be written: {error.strerror}.") from error


def _escaped(document: str) -> str:
    """Return a JSON document in ASCII: escape the other characters, which only strings have."""

    def escape(found: re.Match[str]) -> str:
        units = found[0].encode("utf-16-be").hex()
        return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))

    return _NOT_ASCII.sub(escape, document)


def discard_output() -> None:
    """Discard what Python still has to write to stdout and stderr, if these cannot be written."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())


def printable(text: str) -> str:
    """Return a text without control characters, which values of clients may contain.

    They become question marks, and so do characters that end a line or change the direction of the
    text. Spaces of all widths stay, although `str.isprintable` rejects them.
    """
    if text.isprintable():
        return text
    return "".join("?" if _is_control(each) else each for each in text)


def _is_control(character: str) -> bool:
    category = unicodedata.category(character)
    return category[0] == "C" or category in ("Zl", "Zp")


def _cut(text: str, width: int, shrinks: str) -> str:
    if shrinks == "id":
        return f"…{text[1 - width :]}"
    if shrinks != "names":
        return f"{text[: width - 1]}…"
    names = text.split(", ")
    fitting = len(names)
    shown = text
    # The first name is whole, however long it is.
    while len(shown) > width and fitting > 1:
        fitting -= 1
        shown = f"{', '.join(names[:fitting])} +{len(names) - fitting}"
    return shown


def _widths(
    columns: Sequence[TableColumn], cells: Sequence[Sequence[Cell]], *, fit: bool
) -> dict[int, int]:
    """Return the widths of columns, without those that are left out to fit the terminal.

    If the remaining columns are wider than the terminal, the lines wrap, because a name that is cut
    is of no use.
    """
    widths = {n: max(len(row[n].text) for row in cells) for n in range(len(columns))}
    if not fit:
        return widths
    least = _NARROW
    narrowest = [
        max(
            (len(_cut(row[n].text, 0, "names")) for row in cells if each.shrinks == "names"),
            default=0,
        )
        for n, each in enumerate(columns)
    ]
    empty = [n for n in widths if columns[n].drops and {row[n].text for row in cells[1:]} == {NONE}]
    while (excess := _excess(widths)) > 0:
        shrinking = [
            n for n in widths if columns[n].shrinks and widths[n] > max(least, narrowest[n])
        ]
        dropping = [n for n in widths if columns[n].drops]
        if empty:
            del widths[empty.pop()]
        elif shrinking:
            widest = max(shrinking, key=widths.__getitem__)
            widths[widest] = max(least, narrowest[widest], widths[widest] - excess)
        elif dropping:
            del widths[max(dropping, key=lambda n: columns[n].drops)]
        elif least > _NARROWEST:
            least = _NARROWEST
        else:
            break
    return widths


def _excess(widths: Mapping[int, int]) -> int:
    whole = sum(widths.values()) + _GAP * (len(widths) - 1)
    return whole - shutil.get_terminal_size().columns


def _cell(value: Cell | str) -> Cell:
    cell = Cell(value) if isinstance(value, str) else value
    return Cell(printable(cell.text), cell.style)

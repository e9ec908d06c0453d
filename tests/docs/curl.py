"""Run the `$ curl …` lines of a page against a live server, and compare what they print.

A command goes on over lines that end in a backslash, or while a quotation is open. What stands
between it and the next prompt is its response: JSON (see `shape`), text, or with `curl -i` a status
line, the headers that the page wants to show, an empty line and the body. No text: any response
that curl takes for one.

`http://127.0.0.1:8000` is the live server; `:8080` is too, with the routes of the open one.
Variables work as in a shell: `$ KEY=…` sets one for the rest of the page, and a command in
`$ KEY=$(python manage.py …)` really runs. OJS_URL and OJS_API_KEY are set from the start, to a key
with every scope.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO

from django.core.management import call_command

from tests.docs import shape
from tests.docs.pages import Block

#: Where they say the open server of the example project is (`make serve-open`).
OPEN_URL = "http://127.0.0.1:8080"
#: Where the pages say the server is.
SHOWN_URLS = ("http://127.0.0.1:8000", "http://localhost:8000", OPEN_URL)
SECONDS = 30.0

# Not `NAME=value command`: that variable is the command's.
_ASSIGNMENT = re.compile(
    r"(?:export )?([A-Z][A-Z0-9_]*)=(\$\(.*\)|'[^']*'|\"[^\"]*\"|\S*)", re.DOTALL
)
_MANAGED = re.compile(r"\$\(\S+ manage\.py (.*)\)", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """A command line of a block, and what the page shows as its response."""

    text: str
    response: str

    @property
    def is_for_us(self) -> bool:
        """Whether it is a curl command or sets a variable; the rest is the runner's."""
        return self.text.startswith("curl ") or self.variable is not None

    @property
    def variable(self) -> str | None:
        """The variable that it sets, for itself and the lines below."""
        found = _ASSIGNMENT.fullmatch(self.text)
        return found[1] if found else None


def commands(block: Block) -> Iterator[Command]:
    """Yield the commands of a console block."""
    lines = block.text.splitlines()
    while lines:
        line = lines.pop(0)
        if not line.startswith("$ "):
            continue
        text = line.removeprefix("$ ")
        while lines and (text.endswith("\\") or _is_open(text)):
            text += "\n" + lines.pop(0)
        response = []
        while lines and not lines[0].startswith("$ "):
            response.append(lines.pop(0))
        yield Command(text=text, response="\n".join(response).strip())


def _is_open(text: str) -> bool:
    return text.count("'") % 2 == 1


class Shell:
    """The shell of one page's reader."""

    def __init__(self, *, url: str, key: str) -> None:
        """Take the URL of the live server and a key with which everything may be done."""
        self._url = url
        self._ids = shape.Ids()
        self._variables = {"OJS_URL": url, "OJS_API_KEY": key}

    def run(self, command: Command) -> None:
        """Run a command. Raises AssertionError when its response is not the one that is shown."""
        text = self._ids.put_in(command.text)
        for shown in SHOWN_URLS:
            text = text.replace(shown, self._url)
        if command.variable is not None:
            self._variables[command.variable] = self._value(text, command.variable)
            return
        came = self._bash(text)
        if command.response:
            check(command.response, came, self._ids)

    def _value(self, text: str, name: str) -> str:
        if managed := _MANAGED.search(text):
            out = StringIO()
            words = shlex.split(managed[1].replace("\\\n", " "))
            call_command(*words, stdout=out, stderr=StringIO())
            return out.getvalue().strip()
        return self._bash(f'{text}\nprintf %s "${name}"')

    def _bash(self, text: str) -> str:
        bash = shutil.which("bash")
        assert bash is not None, "there is no bash"
        done = subprocess.run(
            [bash, "-c", text],
            env={"PATH": os.environ["PATH"], "NO_PROXY": "*", **self._variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert done.returncode == 0, f"ended with {done.returncode}: {done.stderr}"
        return done.stdout


def check(shown: str, came: str, ids: shape.Ids) -> None:
    """Compare a response: its head where one is shown, then its body."""
    came = came.replace("\r\n", "\n").strip()
    if shown.startswith("HTTP/"):
        head, _, shown = shown.partition("\n\n")
        actual_head, _, came = came.partition("\n\n")
        _check_head(head, actual_head, ids)
        if not shown:
            return
    if shown[0] in "{[":
        try:
            actual = shape.parse(came)
        except ValueError:
            raise AssertionError(f"the response is no JSON: {came}") from None
        try:
            shape.compare(shape.parse(shown), actual, ids)
        except AssertionError as error:
            error.add_note(f"The whole response: {came}")
            raise
    else:
        shape.compare_text(shown, came, ids)


def _check_head(shown: str, came: str, ids: shape.Ids) -> None:
    status, *headers = shown.splitlines()
    actual_status, *actual = came.splitlines()
    assert status.split()[1] == actual_status.split()[1], f"the status line is {actual_status}"
    values = {name.lower(): value.strip() for name, _, value in (h.partition(":") for h in actual)}
    for header in headers:
        name, _, value = header.partition(":")
        if header.strip() == shape.REST:
            continue
        assert name.lower() in values, f"there is no header {name}"
        shape.compare_text(value.strip(), values[name.lower()], ids, f"the header {name}")

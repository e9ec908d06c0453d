"""A reader who types a page: each file where the page says, each command in its order.

The reader begins in an empty folder, or with a copy of the project that the tutorial makes, has a
shell, and opens what he needs beside it: a `manage.py shell` for blocks of Python that name no
file, and another terminal for commands that do not end. Nothing of the environment of the tests is
there but what `pip install` on the page brings (see `pip.py`).

- A block whose first line names a file (`# shop/jobs.py`) is written there; one that says *further
  down*, or has `...` for existing lines, is added to what is there. The folder must exist, and be a
  package. Afterwards the shell of Python is a new one, as it has to be for the reader.
- A `$ ` in a console block begins a command. What stands below it is what it prints: JSON (see
  `shape`), text, or with `curl -i` a status line, headers, an empty line and the body.
- Tests that a page shows are run by a command of the page.
- Languages that nobody types (`sql`, `nginx`, `dockerfile`, `text` without a file) are left out.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from socket import socket
from typing import Any

from tests.docs import shape
from tests.docs.pages import ROOT, Block

SECONDS = 120.0
END = b"\x01"
#: Commands that go on until somebody ends them, and what they say when they have started.
ENDLESS = {
    r"manage\.py runserver|make serve-open": r"http://127\.0\.0\.1:\d+",
    r"manage\.py ojs_worker(?!.*--once)": r"runs jobs of",
    r"manage\.py ojs_relay(?!.*--once)": r"\w",
    r"--watch\b": r"\w",
}
#: Servers are needed by later blocks.
SERVERS = re.compile(r"manage\.py runserver|make serve-open")
_TEST_FILE = re.compile(r"(?:.*/)?(?:tests|test_\w+)\.py")
_TEST_COMMAND = re.compile(r"manage\.py test\b|^pytest\b")
_GROWS = re.compile(r"^(\w+) = \[\n\s+\.\.\.,", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """A command line of a block, and what the page shows as its response."""

    text: str
    response: str


def commands(block: Block) -> Iterator[Command]:
    """Yield the commands of a console block."""
    lines = block.text.splitlines()
    while lines:
        line = lines.pop(0)
        if not line.startswith("$ "):
            continue
        text = line.removeprefix("$ ")
        while lines and (text.endswith("\\") or text.count("'") % 2 == 1):
            text += "\n" + lines.pop(0)
        response = []
        while lines and not lines[0].startswith("$ "):
            response.append(lines.pop(0))
        yield Command(text=text, response="\n".join(response).strip())


def free_port() -> int:
    with closing(socket()) as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Reader:
    """One reading of some blocks, in a folder of its own."""

    def __init__(self, folder: Path, **variables: str) -> None:
        """Take the folder of the project, and variables of its environment."""
        self._folder = folder
        self._variables = variables
        self._ids = shape.Ids()
        self._ports = {shown: str(free_port()) for shown in ("8000", "8080")}
        self._servers: dict[str, int] = {}
        self._terminals: list[int] = []
        self._written: list[str] = []
        self._session: subprocess.Popen[str] | None = None
        self._responses = -1
        self._untested = ""
        self._make_machine()
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def _environment(self) -> dict[str, str]:
        folder = self._folder
        path = [folder / "venv/bin", folder.parent / "machine", "/usr/local/bin:/usr/bin:/bin"]
        return {
            "PATH": ":".join(map(str, path)),
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "NO_PROXY": "*",
            "PYTHONUNBUFFERED": "1",
            # For `make serve-open`, which is typed in the checkout.
            "VENV": sys.prefix,
            "OJS_DEMO_DATABASE": "sqlite",
            **self._variables,
        }

    def _make_machine(self) -> None:
        """Let `python3 -m venv` make an environment whose `pip` needs no network."""
        machine = self._folder.parent / "machine"
        machine.mkdir(exist_ok=True)
        program = machine / "python3"
        program.write_text(f"""#!/bin/sh
set -e
{sys._base_executable} "$1" "$2" --without-pip "$3"
cat > "$3/bin/pip" <<'END'
#!/bin/sh
exec {sys.executable} {Path(__file__).with_name("pip.py")} "$(dirname "$0")/.." "$@"
END
chmod +x "$3/bin/pip"
""")
        program.chmod(0o755)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *failure: object) -> None:
        self._close_session()
        for pid in self._servers.values():
            self._end(pid)
        self._bash.communicate(timeout=SECONDS)

    def read(self, blocks: Iterable[Block]) -> None:
        """Type blocks, and look at the end whether all files were of use."""
        for block in blocks:
            try:
                self.type(block)
            except Exception as error:
                error.add_note(f"in the block at {block.where}")
                raise
        assert not self._untested, f"{self._untested} is a test, and the page does not run it"
        modules = [name for name in self._written if not name.startswith("gunicorn")]
        if (self._folder / "manage.py").exists() and modules:
            lines = [f"import {name}" for name in dict.fromkeys(modules)]
            lines.append("from django.core.management import call_command as call")
            lines.append("call('check', fail_level='ERROR')")
            self._python("\n".join(lines), is_transcript=False, where="the files of the page")

    def type(self, block: Block) -> None:
        """Do what a reader does with a block."""
        if block.untyped:
            return
        if block.file is not None:
            self._write(block)
        elif block.language == "console":
            for command in commands(block):
                self._run(command)
            while self._terminals:
                self._end(self._terminals.pop())
        elif block.language in ("python", "pycon"):
            is_transcript = block.language == "pycon"
            self._python(block.text, is_transcript=is_transcript, where=block.where)

    # Files

    def _write(self, block: Block) -> None:
        assert block.file is not None
        path = self._folder / block.file
        first = block.text.partition("\n")[0]
        assert path.parent.is_dir(), f"there is no folder {path.parent.name}"
        if path.parent != self._folder and path.suffix == ".py":
            assert (path.parent / "__init__.py").exists(), f"{path.parent.name} is no package"
        text = block.text
        if path.name == "settings.py" or "further down" in first or _GROWS.search(text):
            text = f"{path.read_text()}\n{_merged(text)}"
        path.unlink(missing_ok=True)  # It may be a link to the file of the common project.
        path.write_text(text)
        if _TEST_FILE.fullmatch(block.file):
            self._untested = block.file
        elif block.module is not None:
            self._written.append(block.module)
        self._close_session()
        for command in list(self._servers):  # As its autoreloader does.
            self._end(self._servers.pop(command))
            self._start(command)

    # Commands

    def _run(self, command: Command) -> None:
        text = self._ids.put_in(command.text)
        for shown, port in self._ports.items():
            text = re.sub(rf"(127\.0\.0\.1:|localhost:|PORT=){shown}\b", rf"\g<1>{port}", text)
        if text.endswith("manage.py shell"):
            self._close_session()
            return
        if any(re.search(pattern, text) for pattern in ENDLESS):
            self._start(text)
            return
        if _TEST_COMMAND.search(text):
            self._untested = ""
        said = self.say(text)
        assert "Found 0 test" not in said, said
        if command.response:
            check(command.response, said, self._ids)

    def say(self, text: str) -> str:
        """Type a line into the shell. Return what it prints; one that fails is an error."""
        said, code = self._say(text)
        # It is 1 where the doctor has found something.
        allowed = (0, 1) if "manage.py ojs doctor" in text else (0,)
        assert code in allowed, f"{text}\nended with {code}:\n{said}"
        return said

    def _say(self, text: str) -> tuple[str, int]:
        """Type a line into the shell. Return what it prints, and its exit code."""
        assert self._bash.stdin
        assert self._bash.stdout
        line = f"{{\n{text}\n}} </dev/null\nprintf '\\1%s\\n' $?\n"
        self._bash.stdin.write(line.encode())
        self._bash.stdin.flush()
        said, deadline = b"", time.monotonic() + SECONDS
        while not re.search(rb"\x01\d+\n$", said):
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self._bash.stdout], [], [], max(left, 0))
            assert ready, f"{text}\ndoes not end:\n{said.decode()}"
            part = os.read(self._bash.stdout.fileno(), 65536)
            assert part, f"{text}\nended the shell:\n{said.decode()}"
            said += part
        printed, _, code = said.rpartition(END)
        return printed.decode(), int(code)

    def _start(self, command: str) -> None:
        """Type a command that does not end into another terminal, and wait until it has started."""
        is_server = bool(SERVERS.search(command))
        if command in self._servers:
            self._end(self._servers.pop(command))
        text = re.sub(
            r"manage\.py runserver\S*",
            f"manage.py runserver --noreload {self._ports['8000']}",
            command,
        ).removesuffix(" &")
        in_checkout = f"cd {ROOT} && " if "make serve-open" in text else ""
        text = f"{in_checkout}exec env {text}"
        said = self._folder / f"terminal-{len(list(self._folder.glob('terminal-*')))}.txt"
        printed, _ = self._say(f"({text}) > {said} 2>&1 &\necho $!")
        pid = int(printed.split()[-1])
        pattern = next(ready for each, ready in ENDLESS.items() if re.search(each, command))
        deadline = time.monotonic() + SECONDS
        while not re.search(pattern, said.read_text() if said.exists() else ""):
            assert _lives(pid), f"{command}\nended:\n{said.read_text()}"
            assert time.monotonic() < deadline, f"{command}\ndoes not start:\n{said.read_text()}"
            time.sleep(0.02)
        if is_server:
            self._servers[command] = pid
        else:
            self._terminals.append(pid)

    def _end(self, pid: int) -> None:
        self._say(f"kill {pid}; wait {pid} || true")

    # The shell of Python

    def _python(self, text: str, *, is_transcript: bool, where: str) -> None:
        session = self._session or self._open_session()
        assert session.stdin
        block = {"text": text, "is_transcript": is_transcript, "where": where}
        session.stdin.write(json.dumps(block) + "\n")
        session.stdin.flush()
        ready, _, _ = select.select([self._responses], [], [], SECONDS)
        assert ready, f"{where} does not end"
        response = os.read(self._responses, 1_000_000)
        assert response, f"the shell of Python has ended: {self._session_said()}"
        failure = json.loads(response)
        assert failure is None, failure

    def _open_session(self) -> subprocess.Popen[str]:
        self._responses, writing = os.pipe()
        source = Path(__file__).with_name("session.py").read_text()
        with (self._folder / "session.txt").open("a") as said:
            self._session = subprocess.Popen(
                ["python", "manage.py", "shell", "-v", "0", "-c", f"{source}\nmain({writing})"],
                executable=self._folder / "venv/bin/python",
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=subprocess.STDOUT,
                text=True,
                pass_fds=[writing],
            )
        os.close(writing)
        return self._session

    def _session_said(self) -> str:
        return (self._folder / "session.txt").read_text()

    def _close_session(self) -> None:
        if self._session is not None:
            self._session.communicate(timeout=SECONDS)
            os.close(self._responses)
            self._session = None


def copy(project: Path, folder: Path) -> None:
    """Copy a project and its environment, mostly as hard links."""

    def put(source: str, target: str) -> Any:
        is_data = ".sqlite3" in source
        return shutil.copyfile(source, target) if is_data else os.link(source, target)

    shutil.copytree(project, folder, symlinks=True, copy_function=put)


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


def _merged(text: str) -> str:
    """Let the lines of a block stand beside those that are there, as its reader does."""
    grown = _GROWS.findall(text)
    text = _GROWS.sub(r"\1 = [\n    *\1,", text)
    # A key of the settings is put beside the others.
    text = re.sub(r"^OJS = \{", 'OJS = globals().get("OJS", {}) | {', text, flags=re.MULTILINE)
    return "\n".join([text, *(f"{name} = list(dict.fromkeys({name}))" for name in grown), ""])


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIG_DFL)
    except ProcessLookupError:
        return False
    return True

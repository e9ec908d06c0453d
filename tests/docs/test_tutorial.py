"""The tutorial, followed in an empty folder with a project, a shell and a worker of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import groupby
from pathlib import Path

from tests.docs.pages import ROOT, Block, blocks

PAGE = ROOT / "docs" / "tutorial" / "first-job.md"

#: Runs what stdin has as the session of a shell, and compares it with what the page shows.
SESSION = """
import doctest, sys
session = doctest.DocTestParser().get_doctest(sys.stdin.read(), dict(globals()), "tutorial", "", 0)
flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
sys.exit(doctest.DocTestRunner(optionflags=flags).run(session).failed)
"""
DIFFERENT = [r"\d\d:\d\d:\d\d", r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", r"\d[\d.]* m?s\b"]
THE_SAME = "|".join(f"(?P<{'abc'[index]}>{each})" for index, each in enumerate(DIFFERENT))
#: What the folder has without pip: this package is on the path.
INSTALLATION = ("python3 -m venv", ". venv/", "pip install")


class Reader:
    """Somebody who types what the page says, one block after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._said = ""
        self._in_shell = False

    def read(self, page: list[Block]) -> None:
        for language, group in groupby(page, key=lambda block: block.language):
            found = list(group)
            text = "\n".join(block.text for block in found)
            if language == "pycon":
                assert self._in_shell, f"{found[0].where}: no shell is open"
                self._run("manage.py", "shell", "-v", "0", "-c", SESSION, typed=text)
            elif language == "console":
                self._console(text)
            elif language == "python":
                for block in found:
                    self._write(block)
            else:
                self._compare(text)

    def _console(self, text: str) -> None:
        for command in re.findall(r"^\$ (.+)$", text, re.MULTILINE):
            program, *arguments = command.split()
            self._in_shell = arguments[-1] == "shell"
            if self._in_shell or command.startswith(INSTALLATION):
                continue
            django_admin = ["-m", "django"] if program == "django-admin" else []
            self._said = self._run(*django_admin, *arguments)

    def _write(self, block: Block) -> None:
        path = self._folder / block.text.partition("\n")[0].removeprefix("# ")
        text = block.text
        if path.name == "settings.py":
            # `...` stands for the existing lines.
            before = path.read_text()
            (apps,) = re.findall(r"^INSTALLED_APPS = \[\n(.*?)^\]", before, re.M | re.S)
            text = before + text.replace("    ...,\n", apps)
        path.write_text(text)

    def _compare(self, shown: str) -> None:
        """Compare what the last command said: times, ids and what `…` stands for may differ."""
        shown = shown.strip().replace("/home/you/site", str(self._folder))
        pattern, end = "", 0
        for found in re.finditer(f"{THE_SAME}|…", shown):
            pattern += re.escape(shown[end : found.start()])
            pattern += ".*?" if found[0] == "…" else DIFFERENT["abc".index(str(found.lastgroup))]
            end = found.end()
        pattern += re.escape(shown[end:])
        assert re.fullmatch(pattern, self._said.strip(), re.S), self._said

    def _run(self, *arguments: str, typed: str | None = None) -> str:
        left_out = ("DJANGO_SETTINGS_MODULE", "OJS_TEST_DATABASE", "COVERAGE_PROCESS_START")
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self._folder,
            env={name: value for name, value in os.environ.items() if name not in left_out}
            | {"PYTHONPATH": str(ROOT)},
            input=typed,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stderr


def test_a_newcomer_gets_what_the_page_shows(tmp_path: Path) -> None:
    Reader(tmp_path).read(list(blocks(PAGE)))

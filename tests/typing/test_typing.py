"""A type checker finds the wrong argument where the job is enqueued."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CALLS = Path(__file__).with_name("calls.py")
CACHE = ROOT / ".mypy_cache" / "typing"

_EXPECTED = re.compile(r"# E: ([a-z-]+)$")
_FOUND = re.compile(r"^tests/typing/calls\.py:(\d+): error: .*\[([a-z-]+)\]$")


def expected() -> set[tuple[int, str]]:
    return {
        (number, found.group(1))
        for number, line in enumerate(CALLS.read_text().splitlines(), 1)
        if (found := _EXPECTED.search(line))
    }


@pytest.mark.process
@pytest.mark.slow
def test_mypy_finds_the_errors_in_the_marked_lines_and_no_others() -> None:
    # A cache of its own: another mypy may be at work in this checkout. It stays, for without one
    # all of Django is read again.
    command = [sys.executable, "-m", "mypy", "--no-pretty", "--no-error-summary"]
    found = subprocess.run(
        [*command, "--cache-dir", str(CACHE), str(CALLS.relative_to(ROOT))],
        cwd=ROOT,
        env={**os.environ, "MYPY_FORCE_COLOR": "0"},
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    lines = [line for line in found.stdout.splitlines() if " error: " in line]
    errors = {_FOUND.match(line) for line in lines}
    assert None not in errors, found.stdout + found.stderr
    reported = {(int(error.group(1)), error.group(2)) for error in errors if error is not None}
    assert reported == expected(), found.stdout
    assert len(expected()) > 50

"""`manage.py ojs` as a process, on a terminal and at a pipe."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from tests.docs.pages import ROOT
from tests.factories import push, push_many
from tests.worker.waiting import BOUND

pytestmark = pytest.mark.django_db(transaction=True)

#: Makes stdin the controlling terminal, from which Ctrl-C comes, and becomes the command.
LOGIN = "import os, sys; os.login_tty(0); os.execv(sys.argv[1], sys.argv[1:])"
COMMAND = (sys.executable, "manage.py", "ojs")


def read_until(stream: int, text: bytes) -> bytes:
    seen = b""
    while text not in seen:
        some = os.read(stream, 65_536)
        assert some, seen
        seen += some
    return seen


@pytest.mark.process
@pytest.mark.once  # What a terminal is told does not depend on the database.
@pytest.mark.smoke
def test_a_live_view_ends_with_ctrl_c_and_restores_the_terminal(
    process_environment: dict[str, str],
) -> None:
    push(queue="mail")
    person, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", LOGIN, *COMMAND, "stats", "--watch", "0.1s"],
        cwd=ROOT,
        env=process_environment | {"TERM": "xterm", "COLUMNS": "120", "LINES": "40"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    try:
        shown = read_until(person, b"\x1b[J")
        assert b"\x1b[?1049h" in shown
        assert b"mail" in shown
        # It is drawn again, over the first frame, with what has changed.
        push_many(3, queue="reports")
        read_until(person, b"reports")
        os.write(person, b"\x03")
        read_until(person, b"\x1b[?1049l")
        assert process.wait(BOUND) == 0
    finally:
        process.kill()
        process.wait()
        os.close(person)


@pytest.mark.process
def test_a_reader_that_ends_early_gets_no_traceback(process_environment: dict[str, str]) -> None:
    push(queue="mail")
    process = subprocess.Popen(
        [*COMMAND, "stats", "--watch", "0.05s", "--json"],
        cwd=ROOT,
        env=process_environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert b"Traceback" not in process.stderr.read()
    assert process.wait(BOUND) == 1
    process.stderr.close()

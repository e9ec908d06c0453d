"""A worker that a person has started in a terminal, and handlers that ask this person."""

from __future__ import annotations

import os
import signal

import pytest

from tests.testapp import worker_jobs as handlers
from tests.worker.acceptance.conftest import Start
from tests.worker.acceptance.ledger import ALIASES, becomes, stored

pytestmark = [
    pytest.mark.process,
    pytest.mark.django_db(transaction=True, databases=ALIASES),
]

#: A program with a terminal of its own, which it controls.
IN_TERMINAL = """
import fcntl, os, sys, termios
master, slave = os.openpty()
os.set_inheritable(master, True)
fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
os.dup2(slave, 0)
os.execv(sys.executable, [sys.executable, "manage.py", "ojs_worker", *sys.argv[1:]])
"""


def test_a_handler_that_asks_somebody_fails_and_stops_no_process(start: Start) -> None:
    tree = start("--threads", "2", program=("-c", IN_TERMINAL)).ready()
    errors = {
        "input": "EOFError",
        "breakpoint": "BdbQuit",
        "getpass": "EOFError",
        "read": "OSError",
    }
    jobs = {how: stored(handlers.ask.enqueue(how)) for how in errors}
    for how, job in jobs.items():
        assert becomes(job, "discarded").error["type"] == errors[how]
    children = tree.children()
    becomes(stored(handlers.quick.enqueue(1)), "completed")
    assert tree.children() == children
    os.kill(tree.pid, signal.SIGINT)
    assert tree.ends() == 0

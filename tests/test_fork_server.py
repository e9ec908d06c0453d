"""The processes that tests start by a fork server are as real as new interpreters."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import fork_server
from tests.cases import named
from tests.fork_server import ROOT

#: Prints what a program finds; the settings are read from the environment.
PROGRAM = """
import json, os, sys, threading
import django
django.setup()
from django.apps import apps
from django.conf import settings
from django.db import connection, connections
from django_ojs import conf
print(json.dumps([
    os.environ["OJS_TEST_OJS"], settings.OJS, apps.ready, settings.DEBUG, os.getcwd(), sys.argv,
    conf.settings().poll_interval.total_seconds(),
    connection.settings_dict["NAME"], connections.settings["default"]["NAME"],
    os.getsid(0) == os.getpid(), sys.stdin.read(), __name__, threading.active_count(),
    sorted(os.listdir("/proc/self/fd"))[:4],
]))
print("an error", file=sys.stderr)
sys.exit(7)
"""


@pytest.fixture
def variables() -> dict[str, str]:
    # Where coverage measures, everything is a new interpreter.
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("COVERAGE_")}
    return {**inherited, "DJANGO_SETTINGS_MODULE": "tests.worker.settings"}


def new(*arguments: Any, **options: Any) -> Any:
    return subprocess.run(*arguments, **options)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, each program is a new interpreter")
def test_a_fork_finds_what_a_new_interpreter_does(
    variables: dict[str, str], tmp_path: Path
) -> None:
    found = []
    for start in (fork_server.run, new):
        for poll in (1, 2):
            done = start(
                [sys.executable, "-c", PROGRAM, "given"],
                env={
                    **variables,
                    "PYTHONPATH": str(ROOT),
                    "OJS_TEST_OJS": json.dumps({"POLL_INTERVAL": poll}),
                    "OJS_TEST_DEBUG": str(poll),
                    "OJS_TEST_DATABASE_NAMES": f"default=one{poll},other=two",
                },
                cwd=tmp_path,
                input="typed",
                capture_output=True,
                text=True,
                start_new_session=True,
            )
            assert done.stderr == "an error\n"
            assert done.returncode == 7
            found.append(json.loads(done.stdout))
    assert found[:2] == found[2:]
    assert [one[1] for one in found[:2]] == [{"POLL_INTERVAL": 1}, {"POLL_INTERVAL": 2}]
    # What the package has checked, and the names that a connection was made of.
    assert [one[6:9] for one in found[:2]] == [[1, "one1", "one1"], [2, "one2", "one2"]]


def test_a_fork_ends_as_a_new_interpreter_does(variables: dict[str, str]) -> None:
    begins = (
        "import atexit, sys, threading, time\n"
        "atexit.register(print, 'at exit')\n"
        "def late(): threading.main_thread().join(); print('late')\n"
        "threading.Thread(target=late).start()\n"
        "print('begun')\n"
    )
    for ends in (
        *("pass", "sys.exit()", "sys.exit(7)", "sys.exit(-1)", "sys.exit(300)", "sys.exit(True)"),
        *("sys.exit('wrong')", "1 / 0", "raise KeyboardInterrupt", "sys.stdout.close()"),
    ):
        with named(ends):
            of_a_fork, of_python = (
                start(
                    [sys.executable, "-c", begins + ends],
                    env=variables,
                    capture_output=True,
                    text=True,
                )
                for start in (fork_server.run, new)
            )
            assert of_a_fork.returncode == of_python.returncode
            assert of_a_fork.stdout == of_python.stdout
            # In a traceback, the lines of the server stand above those of the program.
            last = [done.stderr.splitlines()[-1:] for done in (of_a_fork, of_python)]
            assert last[0] == last[1]


def test_a_signal_ends_it_and_is_its_exit_code(variables: dict[str, str]) -> None:
    code = "import signal; print(1, flush=True); signal.pause()"
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        process = fork_server.popen(
            [sys.executable, "-c", code],
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        with process:
            assert process.stdout is not None
            assert process.stdout.readline() == "1\n"
            assert process.poll() is None
            process.send_signal(number)
            assert process.wait() == -number
    assert isinstance(process, fork_server._Forked) == (sys.platform == "linux")


def test_programs_that_are_measured_and_those_of_some_tests_are_interpreters(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-c", "pass"]
    measured = variables | {"COVERAGE_SOMETHING": "1"}
    with fork_server.popen(command, env=measured) as process:
        assert type(process) is subprocess.Popen
    monkeypatch.setattr(fork_server.Start, "always_new", True)
    with fork_server.popen(command, env=variables) as process:
        assert type(process) is subprocess.Popen

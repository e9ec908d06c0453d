"""The embedded PostgreSQL lives exactly as long as somebody uses it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.postgresql, pytest.mark.process]

USER = """
import sys
from pathlib import Path
from example_project import embedded_server
print(embedded_server.start(Path(sys.argv[1]), throwaway=sys.argv[2] == "throwaway"), flush=True)
sys.stdin.readline()
"""
SECONDS = 180.0


class User:
    """A process that uses the server until it is stopped."""

    def __init__(self, home: Path, mode: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER, str(home), mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()

    def go(self) -> None:
        self.process.communicate("\n", timeout=SECONDS)

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.communicate(timeout=SECONDS)


@pytest.fixture
def home() -> Iterator[Path]:
    # Not in `tmp_path`: as root, the server runs as another user, and the first test of another
    # pytest that asks for `tmp_path` takes that user's access to the parent folder away.
    folder = Path(tempfile.mkdtemp(prefix="ojs-server-"))
    # Longer than the 107 bytes that the path of a Unix socket may have.
    deep = folder / ("a-clone-in-a-deep-folder-" * 5)
    deep.mkdir()
    yield deep / "postgres"
    wait_until_down(deep / "postgres")
    shutil.rmtree(folder, ignore_errors=True)


def wait_until_down(home: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while (home / "data" / "postmaster.pid").exists():
        assert time.monotonic() < deadline, "the server is still up"
        time.sleep(0.05)  # Another process's server: there is no signal of it to wait on.


def responds(url: str) -> bool:
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT 1").fetchone() == (1,)


def test_the_server_outlives_its_first_user_and_not_its_last(home: Path) -> None:
    first = User(home, "keep")
    second = User(home, "keep")
    assert first.url == second.url
    first.go()
    assert responds(second.url)
    second.go()
    assert not (home / "data" / "postmaster.pid").exists()


def test_the_server_goes_down_when_its_last_user_is_killed(home: Path) -> None:
    user = User(home, "keep")
    assert responds(user.url)
    user.kill()
    wait_until_down(home)


def test_the_data_are_there_when_it_is_started_again(home: Path) -> None:
    user = User(home, "keep")
    with psycopg.connect(user.url) as connection:
        connection.execute("CREATE TABLE kept (id int)")
    user.go()
    again = User(home, "keep")
    with psycopg.connect(again.url) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,)
    again.go()


def test_a_throwaway_server_leaves_nothing_behind(home: Path) -> None:
    user = User(home, "throwaway")
    assert responds(user.url)
    user.go()
    deadline = time.monotonic() + SECONDS
    while home.exists():
        assert time.monotonic() < deadline, "its folder is still there"
        time.sleep(0.05)

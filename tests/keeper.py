"""A process that ends a program, and all that it has started, with the process that wanted it.

The keeper reads a pipe of which only that process has the other end: the pipe ends with the
process, in whatever way. The program and its descendants are descendants of the keeper until then,
also those that changed their session, such as the server that a cluster manager starts.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_POLL_SECONDS = 0.02
_STOP_SECONDS = 30.0


class Keeper:
    """A program under its keeper."""

    def __init__(self, home: Path, name: str, command: list[str], account: str = "") -> None:
        read, self._pipe = os.pipe()
        self.log = home / f"{name}.log"
        with open(self.log, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as output:
            # In a session of its own: Ctrl-C in the terminal is not meant for the program.
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, str(read), str(home), account, *command],
                pass_fds=[read],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        os.close(read)

    @property
    def pid(self) -> int:
        """Of the keeper, whose descendants the program and all its processes are."""
        return self._process.pid

    def close(self) -> None:
        """Kill the program and all that it has started."""
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        self._process.wait(_STOP_SECONDS)


def remove_at_the_end(home: Path) -> Keeper:
    """Remove a folder when this process and all keepers in that folder have ended."""
    return Keeper(home, "remover", [])


def _keep(pipe: int, home: str, account: str, command: list[str]) -> None:
    lock = os.open(f"{home}/lock", os.O_RDWR | os.O_CREAT, 0o600)
    if not command:
        _read_to_the_end(pipe)
        # Waits until the others have ended.
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(home, ignore_errors=True)
        return
    fcntl.flock(lock, fcntl.LOCK_SH)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # Nobody may see a process that has ended, and think that it still runs.
    signal.signal(signal.SIGCHLD, lambda *_: _reap())
    subprocess.Popen(command, stdin=subprocess.DEVNULL, user=account or None, cwd=home)
    _read_to_the_end(pipe)
    # The children of a process that was killed are children of the keeper then.
    while _reap():
        for pid in _children():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)


def _read_to_the_end(pipe: int) -> None:
    select.select([pipe], [], [])


def _reap() -> bool:
    """Bury the children that have ended. Return whether others are left."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    return False


def _children() -> Iterator[int]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                stat = Path("/proc", name, "stat").read_text()
                # After the name of the program, which may hold anything: state, parent.
                if int(stat.rpartition(")")[2].split()[1]) == os.getpid():
                    yield int(name)


if __name__ == "__main__":
    _keep(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:])

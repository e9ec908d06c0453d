"""Child processes: start, stop, and what they use, by Linux's /proc."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")

#: Seconds that a worker may take to stop.
STOP_SECONDS = 20.0


class Children:
    """A few processes that are one worker to us."""

    def __init__(
        self, commands: Sequence[Sequence[str]], environment: Mapping[str, str], log: Path
    ) -> None:
        with log.open("ab") as output:
            self._processes = [
                subprocess.Popen(
                    [sys.executable, "-W", "ignore", *command],
                    env={**os.environ, **environment},
                    stdout=output,
                    stderr=output,
                    stdin=subprocess.DEVNULL,
                )
                for command in commands
            ]

    def cpu(self) -> float:
        """Return the seconds computed by these processes and all below them."""
        return sum(cpu(process.pid) for process in self._processes)

    def memory(self) -> float:
        """Return the megabytes they take; what several share is counted once."""
        return sum(
            _proportional_set_size(pid) for process in self._processes for pid in _tree(process.pid)
        )

    def check(self) -> None:
        """Raise RuntimeError when one of them has ended by itself."""
        for process in self._processes:
            if process.poll() is not None:
                raise RuntimeError(f"a worker ended by itself, with code {process.returncode}")

    def kill(self) -> None:
        """Kill them, and all below them."""
        for process in self._processes:
            for pid in reversed(_tree(process.pid)):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Ask them to stop, then make them."""
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                for pid in reversed(_tree(process.pid)):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                process.wait()


def wait_until(
    condition: Callable[[], bool], *, seconds: float, step: float, what: str, watch: Children
) -> None:
    """Look every `step` seconds until the condition holds. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while not condition():
        watch.check()
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:.0f} seconds")
        time.sleep(step)


def cpu(pid: int) -> float:
    """Return the seconds computed by a process, its descendants and those of them that ended."""
    return sum(_cpu_of_one(each) for each in _tree(pid))


def _cpu_of_one(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    except OSError:
        return 0.0
    return sum(int(field) for field in fields[11:15]) / _TICKS  # utime, stime, cutime, cstime


def _tree(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        with suppress(OSError):
            for task in Path(f"/proc/{parent}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found


def _proportional_set_size(pid: int) -> float:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0

"""What a worker process shows its supervisor, in memory that both share.

The supervisor reads it when the process has died, or runs no Python code because a thread keeps the
GIL. Keeping it costs each job some three microseconds.
"""

import mmap
import struct
import threading
import time
from collections.abc import Callable, Iterable
from uuid import UUID

#: Seconds between two signs that the process runs Python code.
PULSE_INTERVAL = 0.5

#: The most jobs in the table. If a process ever has more, its table is no longer used.
CAPACITY = 4096

#: The most processes that each run one job alone, besides the configured processes.
MAX_ISOLATED = 4

# The layout: the number of pulses, two flags, how many jobs wait that must run alone, two flags,
# and until when the last heartbeat counts.
_PULSES = struct.Struct("=Q")
_HAS_RUN, _TOO_MANY, _ISOLATED_WAITING, _LEAVING, _STOP_AT_ONCE = range(8, 13)
_READY_UNTIL = 16
_TIME = struct.Struct("=d")
# A job's id and its run.
_ENTRY = struct.Struct("=16sI")
_TABLE = 24
_NO_ENTRY = bytes(16)


class ProcessStatus:
    """The status of a worker process, made by the supervisor before it forks.

    The process writes it and the supervisor reads it, except for one flag that the supervisor sets:
    to stop without the grace period.
    """

    def __init__(self, tell: Callable[[], None] = lambda: None) -> None:
        # Wakes the supervisor, for changes that it must not see late.
        self._tell = tell
        self._memory = mmap.mmap(-1, _TABLE + CAPACITY * _ENTRY.size)
        # Only the worker process fills these. Most entries stay unused.
        self._free: list[int] = []
        self._next = _TABLE
        # The key is the job's id as a number, whose hash is computed in C, and the run.
        self._entries: dict[tuple[int, int], int] = {}
        self._lock = threading.Lock()

    def start_pulse(self) -> None:
        """Show from now on, in a thread, that the process runs Python code."""
        threading.Thread(target=self._pulse, name="ojs-pulse", daemon=True).start()

    def _pulse(self) -> None:
        while True:
            _PULSES.pack_into(self._memory, 0, self.pulses + 1)
            time.sleep(PULSE_INTERVAL)

    @property
    def pulses(self) -> int:
        """A number that grows while the process runs Python code."""
        number: int = _PULSES.unpack_from(self._memory)[0]
        return number

    def note_ready(self, seconds: float) -> None:
        """Note that a heartbeat was stored, which counts for `seconds`: the process claims jobs."""
        was_ready = self.is_ready
        # This clock is the same for all processes of the machine.
        _TIME.pack_into(self._memory, _READY_UNTIL, time.monotonic() + seconds)
        if not was_ready:
            self._tell()

    @property
    def is_ready(self) -> bool:
        """Whether the process has stored a heartbeat lately."""
        until: float = _TIME.unpack_from(self._memory, _READY_UNTIL)[0]
        return time.monotonic() < until

    def note_leaving(self) -> None:
        """Note that the process has stopped claiming jobs, and ends when it has none left."""
        if not self.is_leaving:
            self._memory[_LEAVING] = True
            self._tell()

    @property
    def is_leaving(self) -> bool:
        """Whether the process ends though neither the supervisor nor a directive asked for it."""
        return bool(self._memory[_LEAVING])

    def stop_at_once(self) -> None:
        """Let the next signal to stop end the grace period (called by the supervisor)."""
        self._memory[_STOP_AT_ONCE] = True

    @property
    def must_stop_at_once(self) -> bool:
        """Whether the supervisor was asked again to stop."""
        return bool(self._memory[_STOP_AT_ONCE])

    def started(self, key: UUID, run: int) -> None:
        """Note that a handler starts to run a job."""
        with self._lock:
            self._memory[_HAS_RUN] = True
            if self._free:
                at = self._free.pop()
            elif self._next < len(self._memory):
                at, self._next = self._next, self._next + _ENTRY.size
            else:
                self._memory[_TOO_MANY] = True
                return
            self._entries[key.int, run] = at
            _ENTRY.pack_into(self._memory, at, key.bytes, run)

    def ended(self, runs: Iterable[tuple[UUID, int]]) -> None:
        """Note that the outcomes of runs are stored: the id of each job, and its run."""
        with self._lock:
            for key, run in runs:
                at = self._entries.pop((key.int, run), None)
                if at is not None:
                    _ENTRY.pack_into(self._memory, at, _NO_ENTRY, 0)
                    self._free.append(at)

    @property
    def has_run(self) -> bool:
        """Whether a handler has started."""
        return bool(self._memory[_HAS_RUN])

    def running(self) -> set[tuple[UUID, int]] | None:
        """Return (id, run) of the jobs that started and whose outcome is not stored.

        Return None if there were too many to know them all.
        """
        if self._memory[_TOO_MANY]:
            return None
        entries = _ENTRY.iter_unpack(self._memory[_TABLE:])
        return {(UUID(bytes=key), run) for key, run in entries if key != _NO_ENTRY}

    def note_isolated(self, number: int) -> None:
        """Note how many of the available jobs must run alone, up to MAX_ISOLATED."""
        self._memory[_ISOLATED_WAITING] = number
        if number:
            self._tell()

    def take_isolated(self) -> int:
        """Return the number that `note_isolated` has stored since the last call, or 0."""
        noted = self._memory[_ISOLATED_WAITING]
        self._memory[_ISOLATED_WAITING] = 0
        return noted

    def close(self) -> None:
        """Free the memory in this process."""
        self._memory.close()

"""What the processes of a supervisor know of each other's claims, in memory that they share.

They claim from the same queues. If a claim of one process leaves no job, the others would find no
job that was available when it began. So a notification, which all of them get, and a poll need one
claim, and not one for each process.
"""

import mmap
import struct
import time
from collections.abc import Callable

#: Seconds for which a process waits for the claim of another one, which may be frozen or dead.
LONGEST = 0.01
#: Seconds between two checks during this wait. A claim takes about as long.
PAUSE = 0.001

_TIME = struct.Struct("=d")
_LEFT_NONE, _ANSWERED, _BUSY_UNTIL, _ISOLATED = range(0, 4 * _TIME.size, _TIME.size)


class SiblingClaims:
    """The claims of the processes that share this object since their fork.

    Times are of the machine's monotonic clock, except for the times of notifications. There is no
    lock that a dead process could hold: if two write at once, there is one needless claim.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 4 * _TIME.size)
        for at in (_LEFT_NONE, _ANSWERED, _BUSY_UNTIL, _ISOLATED):
            self._write(at, float("-inf"))
        # Whether it is this process that the others wait for.
        self._claims = False

    @property
    def left_none_at(self) -> float:
        """When the last claim began that left no job available."""
        return self._read(_LEFT_NONE)

    def has_answered(self, sent_at: float) -> bool:
        """Whether a claim that left no job began after the notification sent at this time came."""
        return self._read(_ANSWERED) >= sent_at

    def must_claim(self, is_needless: Callable[[], bool]) -> bool:
        """Wait for a claim that another process makes now. Return whether one is still needed.

        If so, the others wait for the claim of this process from now on.
        """
        until = time.monotonic() + LONGEST
        while not is_needless():
            now = time.monotonic()
            if self._claims or now >= min(until, self._read(_BUSY_UNTIL)):
                self.begin()
                return True
            time.sleep(PAUSE)
        return False

    def begin(self) -> None:
        """Note that this process claims, so that the others wait for it."""
        self._claims = True
        self._write(_BUSY_UNTIL, time.monotonic() + LONGEST)

    def end(self, began_at: float, sent_at: float, *, left_none: bool) -> None:
        """Note the end of a claim, and the time of the last notification before it began.

        `left_none`: it would have returned more jobs if there had been any.
        """
        if left_none:
            self._write(_LEFT_NONE, max(began_at, self.left_none_at))
            # It may be less than before, if the clock of the database was set back.
            self._write(_ANSWERED, sent_at)
        self._claims = False
        self._write(_BUSY_UNTIL, float("-inf"))

    def may_look_for_isolated(self, interval: float) -> bool:
        """Whether to look now for jobs that must run alone, which one process does for all."""
        now = time.monotonic()
        if now < self._read(_ISOLATED) + interval:
            return False
        self._write(_ISOLATED, now)
        return True

    def found_no_isolated(self) -> None:
        """Note that no available job must run alone."""
        self._write(_ISOLATED, time.monotonic())

    def _read(self, at: int) -> float:
        value: float = _TIME.unpack_from(self._memory, at)[0]
        return value

    def _write(self, at: int, value: float) -> None:
        _TIME.pack_into(self._memory, at, value)

"""When a job of a queue may start next, where a rule lets none start now.

Each process remembers this for itself. A worker claims again at that time, and first asks by one
query whether the queue is still full.
"""

import time
from typing import Final

from django_ojs.storage import in_memory_state

#: Seconds until a queue is tried again if another transaction holds its lock, or if it has as many
#: active jobs as it may have, because any process may end one at any time. In the second case the
#: time is doubled each time, up to the largest. The processes that end jobs of such a queue wake a
#: worker.
RETRY_AFTER: Final = 0.05
LARGEST_RETRY_AFTER: Final = 60.0


class NextStarts:
    """What this process last found about queues that have rules."""

    def __init__(self) -> None:
        self._by_queue: dict[str, float] = {}
        self._full: set[str] = set()
        self._delays: dict[str, float] = {}
        #: Queues whose jobs this process has claimed, and where a job may start when another ends.
        self.wait_for_ends: set[str] = set()
        #: Queues in which the last claim read as many jobs as it may, and found none that may
        #: start.
        self.unread: set[str] = set()

    def note_full(self, queue: str, seconds: float, *, waits_for_end: bool) -> None:
        """Remember that no job may start for these seconds, or until a job ends."""
        seconds = max(seconds, RETRY_AFTER)
        if waits_for_end:
            delay = self._delays.get(queue, RETRY_AFTER)
            self._delays[queue] = min(2 * delay, LARGEST_RETRY_AFTER)
            seconds = max(seconds, delay)
        self._note(queue, seconds)

    def note_soon(self, queue: str) -> None:
        """Remember that no job may start now, and that one may at any time."""
        self._note(queue, RETRY_AFTER)

    def _note(self, queue: str, seconds: float) -> None:
        self._full.add(queue)
        self._by_queue[queue] = time.monotonic() + seconds

    def was_full(self, queue: str) -> bool:
        """Whether the last claim found that no job may start."""
        return queue in self._full

    def forget(self, queue: str) -> None:
        """Note that the queue has room."""
        self._full.discard(queue)
        self._delays.pop(queue, None)
        self._by_queue.pop(queue, None)

    @property
    def are_known(self) -> bool:
        """Whether there are times that `seconds` has not returned yet."""
        return bool(self._by_queue)

    def seconds(self) -> float | None:
        """Return the seconds until the earliest time. A passed time is returned once, as 0."""
        if not self._by_queue:
            return None
        now = time.monotonic()
        left = min(self._by_queue.values()) - now
        self._by_queue = {queue: at for queue, at in self._by_queue.items() if at > now}
        return max(0.0, left)

    def reset(self) -> None:
        """Forget everything."""
        self._by_queue = {}
        self._full = set()
        self._delays = {}
        self.wait_for_ends = set()
        self.unread = set()


next_starts: Final = in_memory_state.register(NextStarts())

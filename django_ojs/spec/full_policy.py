"""What an enqueue does where a queue is full (ojs-backpressure §5.2)."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final

#: The destination of jobs that return from the outbox to this site's own tables.
LOCAL: Final = "local"


def _unlimited() -> AbstractContextManager[bool]:
    return nullcontext(True)


def _never() -> bool:
    return False


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitPolicy:
    """How long an enqueue waits for room: in queues that `block`, or in all with `always`."""

    seconds: float
    always: bool = False
    #: It is entered before the first wait, and left after the last. If it returns False, the
    #: enqueue does not wait.
    slot: Callable[[], AbstractContextManager[bool]] = _unlimited
    #: Whether the caller has gone. Then the enqueue is rejected, because a caller that got no
    #: response sends its jobs again.
    is_over: Callable[[], bool] = _never


@dataclass(frozen=True, kw_only=True, slots=True)
class FullPolicy:
    """What an enqueue does before it raises QueueFull; it is one of `PushOptions.notes`."""

    #: How long to wait for room. None means not at all.
    wait: WaitPolicy | None = None
    #: Store the jobs in the outbox, which delivers them to this site later.
    outbox: bool = False

"""How long an enqueue may wait for room in a full queue (ojs-backpressure §5.2)."""

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Final, TypeVar

from django_ojs.spec.errors import QueueFull
from django_ojs.spec.full_policy import WaitPolicy
from django_ojs.storage import database

T = TypeVar("T")

#: The most seconds between two checks of a waiting enqueue for room.
_CHECK_EVERY: Final = 0.05


def wait_for_room(attempt: Callable[[], T], policy: WaitPolicy) -> T:
    """Call `attempt`, and again whenever its queue has room, until the timeout of the policy.

    It waits outside of any transaction and without a lock; inside a caller's transaction it does
    not wait. Raises QueueFull.
    """
    if policy.seconds <= 0 or database.connection().in_atomic_block:
        return attempt()
    end = time.monotonic() + policy.seconds
    with ExitStack() as stack:
        has_slot: bool | None = None
        while True:
            try:
                return attempt()
            except QueueFull as full:
                blocks = policy.always or full.details["strategy"] == "block"
                if not blocks or full.can_never_fit or full.has_room is None:
                    raise
                if has_slot is None:
                    has_slot = stack.enter_context(policy.slot())
                has_room = partial(full.has_room, full)
                if not has_slot or not _room_before(end, has_room, policy.is_over):
                    raise


def _room_before(end: float, has_room: Callable[[], bool], is_over: Callable[[], bool]) -> bool:
    """Wait until there is room for the rejected jobs; return False at the timeout, or if over."""
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, random.uniform(_CHECK_EVERY / 2, _CHECK_EVERY)))
        if is_over():
            return False
        if has_room():
            return True
    return False

"""Turns between the queues of one worker (ojs-fair-scheduling §7, §8).

Smooth weighted round-robin: each turn adds the share of each queue to its credit, and the queue
with the most credit pays the sum of all shares for it. A claim of many jobs is divided in the same
way. A queue that has no jobs gives its turns away, and gains no credit for them.

While all queues have jobs, what a queue gets in any number of turns differs from its exact part by
less than the number of queues: the credits add up to zero, and only a positive one pays, so each
stays above minus the sum of the shares.

Nothing is stored: each process remembers its own turns, and begins at a random place in the round.
Each process is fair, and so all are together.
"""

import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import Final

from django_ojs.spec.scheduling import FIRST_WITH_JOBS, QueueOrder
from django_ojs.storage import in_memory_state

#: A process begins at a random one of this many turns.
MAX_START: Final = 1000

#: The most queues whose credit is remembered, because a worker of all queues may see ever new ones.
MAX_CREDITS: Final = 10_000

#: How many orders of queues are remembered for workers over HTTP. Others begin again.
MAX_REMEMBERED: Final = 200


@dataclass(slots=True)
class Ask:
    """How many jobs to claim from a queue, and later how many were found."""

    queue: str
    wanted: int
    found: int = 0


class Turns:
    """Whose turn it is among the queues of a worker. Threads may share it."""

    def __init__(self, order: QueueOrder, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.order = order
        self._is_strict = order.is_strict
        self._clock = clock
        self._lock = threading.Lock()
        #: Whether the last asks ended because each queue had fewer jobs than were wanted.
        self.left_none = False
        self._credits: dict[str, int] = {}
        #: When each queue was asked for jobs last.
        self._asked_at: dict[str, float] = {}

    def asks(self, queues: Sequence[str], count: int) -> Generator[Ask]:
        """Yield which queue to ask for how many jobs, until `count` were found.

        The caller sets `found`, and closes the generator if it stops earlier. A queue that had
        fewer jobs than wanted is not asked again.
        """
        self.left_none = False
        waiting = list(queues)
        for queue in self._overdue(queues, count):
            yield (late := Ask(queue, 1))
            count -= late.found
            if not late.found:
                waiting.remove(queue)
        while count > 0 and waiting:
            if self._is_strict:
                shares, turns = {}, {FIRST_WITH_JOBS: count}
            else:
                shares = self.order.shares(waiting)
                turns = self._take(shares, count)
            ask: Ask | None = None
            try:
                for queue in [name for name in turns if name != FIRST_WITH_JOBS]:
                    yield (ask := Ask(queue, turns[queue]))
                    del turns[queue]
                    count -= ask.found
                    self._note(ask, waiting)
                for queue in list(waiting) if FIRST_WITH_JOBS in turns else ():
                    yield (ask := Ask(queue, turns[FIRST_WITH_JOBS]))
                    turns[FIRST_WITH_JOBS] -= ask.found
                    count -= ask.found
                    self._note(ask, waiting)
                    if not turns[FIRST_WITH_JOBS]:
                        break
            except GeneratorExit:
                # The caller stops before the last queue. Turns in which nothing was claimed are
                # given back.
                if ask is not None:
                    name = ask.queue if ask.queue in turns else FIRST_WITH_JOBS
                    turns[name] -= ask.found
                self._give_back(shares, turns)
                raise
        self.left_none = not waiting

    def _overdue(self, queues: Sequence[str], count: int) -> list[str]:
        """Return the queues that were last asked at least the rotation interval ago."""
        prevention = self.order.prevention
        if prevention is None:
            return []
        now, interval = self._clock(), prevention.rotation_interval.total_seconds()
        with self._lock:
            self._asked_at = {queue: self._asked_at.get(queue, now) for queue in queues}
            found = [queue for queue, at in self._asked_at.items() if now - at >= interval][:count]
            self._asked_at.update(dict.fromkeys(found, now))
        return found

    def _note(self, ask: Ask, waiting: list[str]) -> None:
        if self.order.prevention is not None:
            self._asked_at[ask.queue] = self._clock()
        if ask.found < ask.wanted:
            waiting.remove(ask.queue)

    def _take(self, shares: Mapping[str, int], count: int) -> dict[str, int]:
        """Return how many of `count` turns each queue has, the one with the first turn first."""
        total = sum(shares.values())
        with self._lock:
            if len(self._credits) > max(MAX_CREDITS, 2 * len(shares)):
                self._credits = {name: self._credits.get(name, 0) for name in shares}
            if not self._credits:
                self._divide(shares, total, random.randrange(min(total, MAX_START)))
            return self._divide(shares, total, count)

    def _divide(self, shares: Mapping[str, int], total: int, count: int) -> dict[str, int]:
        """Give `count` turns, each to the queue with the most credit; the first of equals wins."""
        taken: dict[str, int] = {}
        heap = [
            (-self._credits.get(queue, 0) - count * share, index, queue)
            for index, (queue, share) in enumerate(shares.items())
        ]
        heapify(heap)
        for _ in range(count):
            credit, index, queue = heap[0]
            heapreplace(heap, (credit + total, index, queue))
            taken[queue] = taken.get(queue, 0) + 1
        self._credits.update({queue: -credit for credit, _, queue in heap})
        return taken

    def _give_back(self, shares: Mapping[str, int], turns: Mapping[str, int]) -> None:
        """Undo turns that were taken and not used."""
        number, total = sum(turns.values()), sum(shares.values())
        if not number:
            return
        with self._lock:
            for queue, share in shares.items():
                credit = self._credits.get(queue, 0)  # Another thread may have pruned it.
                self._credits[queue] = credit + turns.get(queue, 0) * total - number * share


class RememberedTurns:
    """The turns of workers over HTTP, whose requests come to any process of the server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns: OrderedDict[Hashable, Turns] = OrderedDict()

    def of(self, order: QueueOrder, key: Hashable) -> Turns:
        """Return the turns of an order of queues; the key distinguishes orders that are alike."""
        with self._lock:
            found = self._turns.pop((order, key), None)
            if found is None:
                found = Turns(order)
                while len(self._turns) >= MAX_REMEMBERED:
                    self._turns.popitem(last=False)
            self._turns[order, key] = found
        return found

    def reset(self) -> None:
        """Begin again."""
        self._turns.clear()


remembered: Final = in_memory_state.register(RememberedTurns())

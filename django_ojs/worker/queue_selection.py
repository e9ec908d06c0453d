"""The queues that a worker claims from, and whether the handlers of this process use them."""

import math
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from django_ojs.conf import settings
from django_ojs.handler_registry import registry
from django_ojs.spec.scheduling import ALL
from django_ojs.spec.states import WAITING, State
from django_ojs.storage.figures import counts

_DEFAULT_QUEUE: Final = "default"


class QueueSelection:
    """The queues of a worker in order; `*` becomes the names of the other queues with jobs.

    `due`: the worker's claims promote due jobs (see `fetch`), so that it also needs the queues that
    have scheduled or retryable jobs only.
    """

    def __init__(self, queues: Sequence[str], *, max_age: float, due: bool = False) -> None:
        self._queues = tuple(queues)
        self._max_age = max_age
        self._states = WAITING if due else {State.AVAILABLE}
        self._read_at: float | None = None if ALL in self._queues else math.inf
        # The queues that had jobs when they were read, and the queues that have got a job since.
        self._read: frozenset[str] = frozenset()
        self._added: frozenset[str] = frozenset()
        # The last list, and the added queues in it. It is kept, because sorting many queues may
        # take longer than a claim.
        self._listed: tuple[frozenset[str] | None, tuple[str, ...]] = None, ()

    def current(self) -> tuple[str, ...]:
        """Return the queues to claim from, read at most `max_age` seconds ago."""
        if ALL not in self._queues:
            return self._queues
        now = time.monotonic()
        if self._read_at is None or now - self._read_at >= self._max_age:
            # These are set before the list is read, because `expire` and `add` may be called during
            # the query.
            self._read_at, self._added, self._read = now, frozenset(), frozenset()
            try:
                self._read, self._listed = counts.queues_with(self._states), (None, ())
            except BaseException:
                self._read_at = None
                raise
        added = self._added
        if self._listed[0] is not added:
            index = self._queues.index(ALL)
            others = sorted((self._read | added).difference(self._queues))
            self._listed = added, (*self._queues[:index], *others, *self._queues[index + 1 :])
        return self._listed[1]

    @property
    def read_at(self) -> float:
        """When the list was read, which has no queues that got their first job since."""
        return -math.inf if self._read_at is None else self._read_at

    def expire(self) -> None:
        """Read the queues again with the next call of `current`."""
        if ALL in self._queues:
            self._read_at = None

    def add(self, queues: Collection[str]) -> None:
        """Add queues that have got a job, until the queues are read again."""
        if new := set(queues).difference(self._read, self._added):
            self._added = self._added | new


def handler_queues() -> dict[str, list[str]]:
    """Return the job types that have a handler here, by the queue their jobs go to by default.

    The queues are sorted, and so are the types of each.
    """
    found: dict[str, list[str]] = {}
    for type_, handler in sorted(registry.handlers.items()):
        found.setdefault(handler.defaults.queue or _DEFAULT_QUEUE, []).append(type_)
    return dict(sorted(found.items()))


def own_queues() -> set[str]:
    """Return the queues of the handlers that this package brings, such as that of webhooks."""
    return {
        str(handler.defaults.queue)
        for handler in registry.handlers.values()
        if handler.__module__.startswith("django_ojs.")
    }


def mismatch(
    queues: Sequence[str], handlers: Mapping[str, Sequence[str]], pool: str = ""
) -> str | None:
    """Return a warning if handlers have other queues than these, or None.

    The queues of a pool are set by the project. Other workers need not serve queues that a pool
    keeps to itself.
    """
    if ALL in queues or not handlers or pool:
        return None
    handlers = {
        name: types for name, types in handlers.items() if name not in settings().pool_of_queue
    }
    unused = [name for name in queues if name not in handlers]
    # Most projects have no webhooks; a worker need not serve them.
    missed = sorted(handlers.keys() - {*queues} - own_queues())
    if unused:
        text = f"No handler here has {_names(unused)} as its queue."
    elif missed and tuple(queues) == (_DEFAULT_QUEUE,):
        text = f"This worker claims from {_names(queues)} only."
    else:
        return None
    if missed:
        wanted = ",".join([*(name for name in queues if name in handlers), *missed])
        text += (
            f" Handlers here have {_names(missed)} as their queue: use --queues {wanted}, "
            "or --queues '*' for all queues."
        )
    if unused:
        text += " A handler in another module than jobs.py or tasks.py needs an import there."
    return text


def _names(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)

"""How long finished jobs are kept: by the settings, and by the configuration of their queue.

Queue-config §6.3 and §6.4, dead-letter §5.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from django_ojs.conf import settings
from django_ojs.spec.queue_config import DEFAULT_POLICY
from django_ojs.spec.states import State
from django_ojs.storage import queue_configs
from django_ojs.storage.queue_configs import Snapshot

#: The state of a finished job, and whether it is a dead letter.
Kind = tuple[State, bool]

DEAD_LETTERS: Final[Kind] = (State.DISCARDED, True)


@dataclass(frozen=True, slots=True)
class Retention:
    """How long jobs of one kind are kept."""

    default: timedelta
    #: By queue, where it differs.
    by_queue: Mapping[str, timedelta] = field(default_factory=dict)

    def of(self, queue: str) -> timedelta:
        """Return how long the jobs of a queue are kept."""
        return self.by_queue.get(queue, self.default)

    @property
    def longest(self) -> timedelta:
        """Jobs older than this are kept in no queue."""
        return max([self.default, *self.by_queue.values()])

    @property
    def shortest(self) -> timedelta:
        """Jobs younger than this are kept in every queue."""
        return min([self.default, *self.by_queue.values()])


def current() -> dict[Kind, Retention]:
    """Return the retention of each kind of finished job."""
    configs = queue_configs.current()
    if configs is None:
        return {kind: Retention(age) for kind, age in settings().retention.items()}
    policy = configs.of(DEFAULT_POLICY).retention
    names = {*configs.stored, *settings().queues}
    found = {}
    for kind, age in settings().retention.items():
        default = policy.get(kind, age)
        own = {name: configs.of(name).retention.get(kind, default) for name in names}
        if kind == DEAD_LETTERS:
            own |= _of_dead_letter_queues(configs, names, own, default)
        by_queue = {name: kept for name, kept in own.items() if kept != default}
        found[kind] = Retention(default, by_queue)
    return found


def _of_dead_letter_queues(
    configs: Snapshot, names: Iterable[str], own: Mapping[str, timedelta], default: timedelta
) -> dict[str, timedelta]:
    """Return how long dead-letter queues without a retention of their own keep dead letters.

    That is as long as the queue that names it and keeps its own for the longest time.
    """
    found: dict[str, timedelta] = {}
    for name in names:
        target = configs.of(name).dead_letter_queue
        if target is not None and own.get(target, default) == default:
            found[target] = max(found.get(target, timedelta(0)), own[name])
    return found


def of(queue: str, kind: Kind) -> timedelta:
    """Return how long a queue keeps its jobs of a kind."""
    return current()[kind].of(queue)

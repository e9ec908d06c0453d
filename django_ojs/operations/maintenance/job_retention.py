"""How long finished jobs are kept: by the settings, and by the configuration of their queue.

Queue-config §6.3 and §6.4, dead-letter §5.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from django_ojs.conf import settings
from django_ojs.models import Job
from django_ojs.spec.queue_config import DEFAULT_POLICY, inherit, retention_of
from django_ojs.spec.states import State
from django_ojs.storage import queue_configs

#: The state of a finished job, and whether it is a dead letter.
Kind = tuple[State, bool]

DEAD_LETTERS: Final[Kind] = (State.DISCARDED, True)


@dataclass(frozen=True, slots=True)
class Retention:
    """How long jobs of one kind are kept."""

    default: timedelta
    #: The retention of each queue for which it differs from the default.
    by_queue: Mapping[str, timedelta] = field(default_factory=dict)
    #: The queues with a retention of dead letters in their own configuration.
    own: Collection[str] = frozenset()

    def of(self, queue: str, original_queue: str | None = None) -> timedelta:
        """Return how long the jobs of a queue are kept.

        Jobs that ran in another queue are kept as long as that queue keeps its own, unless the
        queue where they are now has a retention of its own.
        """
        decides = queue if original_queue is None or queue in self.own else original_queue
        return self.by_queue.get(decides, self.default)

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
    in_code = settings().queues
    names = {*configs.stored, *in_code}
    own = [
        name
        for name in names - {DEFAULT_POLICY}
        if DEAD_LETTERS
        in retention_of(inherit(configs.stored.get(name, {}), in_code.get(name, {})))
    ]
    found = {}
    for kind, age in settings().retention.items():
        default = policy.get(kind, age)
        kept = {name: configs.of(name).retention.get(kind, default) for name in names}
        by_queue = {name: each for name, each in kept.items() if each != default}
        found[kind] = Retention(default, by_queue, frozenset(own))
    return found


def of(job: Job) -> timedelta:
    """Return how long a finished job is kept."""
    kept = current()[State(job.state), job.dead_letter]
    return kept.of(job.queue, job.original_queue)

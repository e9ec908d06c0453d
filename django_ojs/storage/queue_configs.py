"""What holds for a queue: its own configuration, over OJS["QUEUES"], over the default policy.

`of` asks without a statement for each job: a process reads all configurations at once, at most
once a second; PUSH asks with every job, and most queues have none. A change made in the same
process is seen at once. `config_of` looks.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from django.db import connections

from django_ojs.conf import settings
from django_ojs.models import Queue
from django_ojs.spec.queue_config import QueueConfig, inherit
from django_ojs.storage import database

#: Seconds until a change made by another process is seen.
LIFETIME: Final = 1.0

#: The row that holds the default policy (ojs-queue-config §7.1).
DEFAULT_POLICY: Final = "_default"

#: What remains of a queue that was deleted while finished or running jobs still carry its name: a
#: row whose configuration is this one key. No client can send it.
DELETED: Final = "_deleted_at"

_NOTHING: Final = QueueConfig()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All configurations as they were, and what those mean that were asked for."""

    good_until: float
    stored: Mapping[str, Mapping[str, Any]]
    meant: dict[str, QueueConfig] = field(default_factory=dict)

    def of(self, name: str) -> QueueConfig:
        """Return what holds for a queue."""
        in_code = settings().queues
        if not self.stored and not in_code:
            return _NOTHING
        key = name if name in self.stored or name in in_code else DEFAULT_POLICY
        found = self.meant.get(key)
        if found is None:
            own, default = self.stored.get(name, {}), self.stored.get(DEFAULT_POLICY, {})
            found = self.meant[key] = effective(name, own, default)
        return found


_snapshots: dict[str, Snapshot] = {}


def effective(name: str, own: Mapping[str, Any], default: Mapping[str, Any]) -> QueueConfig:
    """Return what a stored configuration means, over the settings and the default policy."""
    stored = {} if DELETED in own else own
    return QueueConfig.of(inherit(stored, settings().queues.get(name, {})), default)


def config_of(name: str) -> QueueConfig:
    """Return what holds for a queue now, known or not. One query."""
    wanted = Queue.primary.filter(pk__in=[name, DEFAULT_POLICY])
    found = dict(wanted.values_list("name", "config"))
    return effective(name, found.get(name, {}), found.get(DEFAULT_POLICY, {}))


def of(name: str) -> QueueConfig:
    """Return what holds for a queue, known or not, as it was at most a second ago."""
    alias = database.alias()
    snapshot = _snapshots.get(alias)
    if snapshot is None or time.monotonic() > snapshot.good_until:
        snapshot = remember(alias, _read(alias))
    return snapshot.of(name)


def remember(
    alias: str, stored: Mapping[str, Mapping[str, Any]], seconds: float = LIFETIME
) -> Snapshot:
    """Take these configurations, by name, for those of the queues."""
    snapshot = _snapshots[alias] = Snapshot(time.monotonic() + seconds, stored)
    return snapshot


def changed() -> None:
    """Forget what was read: now, for this transaction, and once it has committed."""
    _snapshots.clear()
    database.after_commit(_snapshots.clear)


def _read(alias: str) -> dict[str, dict[str, Any]]:
    if connections[alias].in_atomic_block:
        # A transaction that reads first and writes then may fail on SQLite where one that writes
        # first waits; the job that is about to be stored needs the lock anyhow.
        database.dialect().begin_write(connections[alias])
    rows = Queue.objects.using(alias).exclude(config={})
    return dict(rows.values_list("name", "config"))

"""The configuration of a queue: its own, over OJS["QUEUES"], over the default policy.

`of` reads a snapshot: a process queries all configurations at most once a second, because every
PUSH needs them and most queues have none. A change in the same process is seen at once. `config_of`
queries.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F

from django_ojs import hooks
from django_ojs.conf import settings
from django_ojs.models import Queue
from django_ojs.spec.queue_config import DEFAULT_POLICY, QueueConfig, inherit
from django_ojs.storage import database, in_memory_state, raw_queries

#: Seconds until a change made by another process is seen.
LIFETIME: Final = 1.0

#: The mark of a deleted queue whose finished or active jobs are still stored: its row has a
#: configuration of this one key. No client can send it.
DELETED: Final = "_deleted_at"

_NOTHING: Final = QueueConfig()
_COLUMNS: Final = ("name", "config", "warned_at")
_SNAPSHOT_COLUMNS: Final = (*_COLUMNS, "rules", "draining_at")
_HAS_SOMETHING: Final = (
    "config <> '{}' OR warned_at IS NOT NULL OR rules <> 0 OR draining_at IS NOT NULL"
)
_NO_ROW: Final[tuple[dict[str, Any], None]] = ({}, None)


#: The `atomic()` of a TestCase, and the caller's own in which it has changed a configuration.
_View: TypeAlias = tuple[object | None, object | None]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All stored configurations at one moment, and the effective ones that were needed."""

    good_until: float
    stored: Mapping[str, Mapping[str, Any]]
    #: The queues that are above their warning threshold.
    warned: frozenset[str] = frozenset()
    #: The rules of queues, by their bits (see `claim_rules.ClaimRule`).
    rules: Mapping[str, int] = field(default_factory=dict)
    #: The queues that accept no jobs.
    draining: frozenset[str] = frozenset()
    #: What was seen of changes that were not committed (see `Snapshots.view`).
    view: _View | None = None
    effective: dict[str, QueueConfig] = field(default_factory=dict)

    def of(self, name: str) -> QueueConfig:
        """Return the effective configuration of a queue."""
        in_code = settings().queues
        key = name if name in self.stored or name in in_code else DEFAULT_POLICY
        found = self.effective.get(key)
        if found is None:
            own, default = self.stored.get(name, {}), self.stored.get(DEFAULT_POLICY, {})
            found = self.effective[key] = effective(name, own, default)
        return found


class Snapshots:
    """The snapshot of this process."""

    def __init__(self) -> None:
        self.kept: Snapshot | None = None
        #: The outermost `atomic()` in which a connection has changed a configuration.
        self.changing: WeakKeyDictionary[BaseDatabaseWrapper, object] = WeakKeyDictionary()

    def reset(self) -> None:
        """Query again the next time."""
        self.kept = None

    def change(self) -> None:
        """Drop the snapshot, because the caller has changed a configuration."""
        link = database.connection()
        if (outermost := _outermost(link)) is not None:
            self.changing[link] = outermost
        self.reset()

    def committed(self) -> None:
        """Drop the snapshot again, because what was changed has been committed."""
        self.changing.pop(database.connection(), None)
        self.reset()

    def view(self) -> _View | None:
        """Return which changes the caller sees that are not committed, or None if there are none.

        The snapshot of one view is not for another: the changes may be rolled back.
        """
        link = database.connection()
        blocks: Any = link.atomic_blocks
        of_test = next((each for each in reversed(blocks) if database.is_of_test(each)), None)
        changed_in = self.changing.get(link)
        if changed_in is not None and changed_in is not _outermost(link):
            del self.changing[link]  # That transaction has been rolled back.
            changed_in = None
        return (of_test, changed_in) if of_test or changed_in else None


def _outermost(link: BaseDatabaseWrapper) -> object | None:
    """Return the outermost `atomic()` that does not belong to a TestCase."""
    blocks: Any = link.atomic_blocks
    return next((each for each in blocks if not database.is_of_test(each)), None)


_snapshots = in_memory_state.register(Snapshots())


def effective(name: str, own: Mapping[str, Any], default: Mapping[str, Any]) -> QueueConfig:
    """Return a stored configuration over the settings and the stored default policy."""
    stored = {} if DELETED in own else own
    in_code = settings().queues
    policy = inherit(default, in_code.get(DEFAULT_POLICY, {}))
    return QueueConfig.of(inherit(stored, in_code.get(name, {})), policy)


def config_of(name: str) -> QueueConfig:
    """Return the effective configuration of a queue now, known or not, by one query."""
    return config_and_warned(name)[0]


def config_and_warned(name: str) -> tuple[QueueConfig, bool]:
    """Return the configuration as `config_of` does, and whether the queue has `warned_at`."""
    rows = raw_queries.values(Queue, _COLUMNS, "name IN (%s, %s)", [name, DEFAULT_POLICY])
    found = {key: (config, at) for key, config, at in rows}
    (own, warned_at), (default, _) = (found.get(key, _NO_ROW) for key in (name, DEFAULT_POLICY))
    return effective(name, own, default), warned_at is not None


def of(name: str) -> QueueConfig:
    """Return the effective configuration of a queue, known or not, at most a second old."""
    configs = current()
    return _NOTHING if configs is None else configs.of(name)


def rules_of(name: str) -> int:
    """Return the rules of a queue as they were at most a second ago, by their bits."""
    stored = latest().rules
    return remembered_rules(name) | stored.get(name, 0) | stored.get(DEFAULT_POLICY, 0)


def remembered_rules(name: str) -> int:
    """Return the rules of a queue that are known without a query."""
    rules = 0
    if in_code := settings().queues:
        rules = hooks.rules_of(in_code.get(name, {}))
        rules |= hooks.rules_of(in_code.get(DEFAULT_POLICY, {}))
    kept = _snapshots.kept
    if kept is None or not kept.rules or time.monotonic() > kept.good_until:
        return rules
    if (kept.view or _snapshots.changing) and kept.view != _snapshots.view():
        return rules
    return rules | kept.rules.get(name, 0) | kept.rules.get(DEFAULT_POLICY, 0)


def current() -> Snapshot | None:
    """Return the configurations, at most a second old, or None if no queue has one or drains."""
    snapshot = latest()
    return snapshot if snapshot.stored or snapshot.draining or settings().queues else None


def latest() -> Snapshot:
    """Return what is stored of all queues, at most a second old."""
    snapshot = _snapshots.kept
    if snapshot is None or time.monotonic() > snapshot.good_until:
        return remember(*_read(), seconds=LIFETIME)
    # Usually no transaction has changed a configuration.
    if (snapshot.view or _snapshots.changing) and snapshot.view != _snapshots.view():
        return remember(*_read(), seconds=LIFETIME)
    return snapshot


def remember(
    stored: Mapping[str, Mapping[str, Any]],
    warned: Iterable[str] = (),
    rules: Mapping[str, int] = MappingProxyType({}),
    draining: Iterable[str] = (),
    *,
    seconds: float,
) -> Snapshot:
    """Keep a snapshot of the stored configurations, and of what else is stored of queues."""
    snapshot = Snapshot(
        time.monotonic() + seconds,
        stored,
        frozenset(warned),
        rules,
        frozenset(draining),
        _snapshots.view(),
    )
    _snapshots.kept = snapshot
    return snapshot


def refresh() -> None:
    """Query all configurations: a statement has shown that another process has changed some."""
    remember(*_read(), seconds=LIFETIME)


def add_rules(queues: Iterable[str], rules: int) -> None:
    """Let the claims of queues apply rules, given by their bits, from the end of this transaction.

    A queue keeps them for good.
    """
    wanted = set(queues)
    known = Queue.primary.filter(pk__in=wanted).values_list("pk", "rules")
    for name in sorted(wanted - {name for name, has in known if has & rules == rules}):
        Queue.primary.bulk_create([Queue(name=name)], ignore_conflicts=True)
        Queue.primary.filter(pk=name).update(rules=F("rules").bitor(rules))
        changed()


def changed() -> None:
    """Drop the snapshot: now, for this transaction, and once it has committed."""
    _snapshots.change()
    database.after_commit(_snapshots.committed)


def _read() -> tuple[dict[str, dict[str, Any]], list[str], dict[str, int], list[str]]:
    connection, dialect = database.connection(), database.dialect()
    if connection.in_atomic_block and dialect.has_one_writer:
        # On SQLite, a transaction that reads before it writes may fail where one that writes first
        # waits. Most callers store a job, so the lock is taken now. Nothing else is changed in the
        # caller's transaction.
        dialect.begin_write(connection)
    rows = raw_queries.values(Queue, _SNAPSHOT_COLUMNS, _HAS_SOMETHING)
    return (
        {name: config for name, config, *_ in rows if config},
        [name for name, _, warned_at, *_ in rows if warned_at is not None],
        {name: rules for name, _, _, rules, _ in rows if rules},
        [name for name, *_, draining_at in rows if draining_at is not None],
    )

"""The known queues (http-binding §11.1, ojs-queue-config §5): those with a row or with jobs.

Nothing here reads the jobs. A queue that is listed for the first time gets a row, so that its
`created_at` stays the same.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import chain
from typing import Final

from django_ojs.conf import settings
from django_ojs.models import Queue
from django_ojs.operations import keyset
from django_ojs.operations.keyset import Order, Page, PageRequest
from django_ojs.operations.queues.rows import RESERVED, forget_deleted, is_deleted, revive, rows
from django_ojs.spec.envelope import check_queue
from django_ojs.spec.errors import NotFound
from django_ojs.spec.queue_config import QueueConfig
from django_ojs.spec.states import WAITING, State
from django_ojs.storage import database, queue_configs
from django_ojs.storage.database import BATCH
from django_ojs.storage.figures import counts, known_queues
from django_ojs.storage.figures.counts import ByState
from django_ojs.storage.queue_configs import DELETED


class QueueState(StrEnum):
    """The state of a queue (ojs-queue-config §5.1); a deleted one is not shown."""

    ACTIVE = "active"
    PAUSED = "paused"
    #: It accepts no jobs; or it is deleted, while jobs that were active at that time still run.
    DRAINING = "draining"


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueStatus:
    """A queue: its state, its jobs by state, and its effective configuration."""

    name: str
    state: QueueState
    created_at: datetime
    #: When its configuration was last changed.
    updated_at: datetime
    paused_at: datetime | None
    counts: ByState
    config: QueueConfig
    #: Since when it accepts no jobs; also while it is paused.
    draining_at: datetime | None = None

    @property
    def paused(self) -> bool:
        """Whether FETCH returns none of its jobs."""
        return self.paused_at is not None

    @property
    def depth(self) -> int:
        """How many jobs wait: available, scheduled or retryable (backpressure §3)."""
        return sum(self.counts.get(state, 0) for state in WAITING)


_BY_NAME: Final[Order] = {"name": str}
_ALL: Final = PageRequest(limit=2**31)


def listing(
    wanted: PageRequest = _ALL, *, within: Collection[str] | None = None
) -> Page[QueueStatus]:
    """Return a page of the known queues, by name; without a request, all of them.

    `within` are the queues that the caller may use.
    """
    (after,) = wanted.start(_BY_NAME) or (None,)
    found = known_queues.by_name(
        after=after, offset=wanted.offset, limit=wanted.limit + 1, within=within
    )
    _forget_ended()
    names = keyset.page_from(found.names, _BY_NAME, wanted, count=lambda: (found.total, False))
    return names.showing(_read(names.rows))


def number(within: Collection[str] | None = None) -> int:
    """Return how many queues are known. `within` as in `listing`."""
    return known_queues.by_name(limit=1, within=within).total


def busiest(*, limit: int, text: str = "") -> Page[QueueStatus]:
    """Return the configured queues, and of the others the `limit` with the most waiting jobs.

    `text`: only queues whose name contains it.
    """
    found = known_queues.by_load(limit=limit, text=text)
    return Page(rows=_read(found.names), count=lambda: (found.total, False))


def get(name: str) -> QueueStatus:
    """Return a queue. Raises NotFound, and InvalidQueue for an invalid name."""
    check_queue(name, settings().limits)
    known = _query([name])
    if name not in known:
        raise not_found(name)
    return _status(*known[name], stored_default())


def not_found(name: str) -> NotFound:
    """Return the error for an unknown queue."""
    return NotFound(
        "There is no queue with this name.",
        details={"resource_type": "queue", "resource_id": name},
    )


def stored_default() -> dict[str, object]:
    """Return the default policy as it is stored."""
    found = Queue.primary.filter(pk=RESERVED[0])
    return found.values_list("config", flat=True).first() or {}


def _forget_ended() -> None:
    """Remove rows of deleted queues whose last jobs are gone."""
    deleted = rows().filter(config__has_key=DELETED).values_list("pk", flat=True)[:BATCH]
    if names := list(deleted):
        _query(names)


def _read(names: Collection[str]) -> list[QueueStatus]:
    if not names:
        return []
    known, default = _query(names), stored_default()
    # One that was deleted in the meantime is missing.
    return [_status(*known[name], default) for name in names if name in known]


def _query(names: Collection[str]) -> dict[str, tuple[Queue, ByState]]:
    counted = {name: found for name, found in counts.by_queue(names).items() if found}
    for name in RESERVED:
        counted.pop(name, None)
    found = rows().filter(pk__in=names)
    stored = {queue.name: queue for queue in found}
    deleted = {name for name, queue in stored.items() if is_deleted(queue)}
    new = counted.keys() - stored.keys()
    # A deleted queue that got new jobs exists again.
    again = {name for name in deleted if _waits(counted.get(name, {}))}
    empty = deleted - counted.keys()
    if new or again or empty:
        for queue in _settle(new, again, empty):
            stored[queue.name] = queue
    return {
        name: (queue, counted.get(name, {}))
        for name, queue in stored.items()
        if not is_deleted(queue) or counted.get(name, {}).get(State.ACTIVE)
    }


@database.write_transaction
def _settle(new: Iterable[str], again: Iterable[str], empty: Iterable[str]) -> list[Queue]:
    missing = [Queue(name=name) for name in sorted(new)]
    Queue.primary.bulk_create(missing, ignore_conflicts=True)
    revive(again)
    forget_deleted(empty)
    return list(rows().filter(pk__in=set(chain(new, again))))


def _waits(found: ByState) -> bool:
    return any(found.get(state) for state in (*WAITING, State.PENDING))


def _status(queue: Queue, found: ByState, default: dict[str, object]) -> QueueStatus:
    gone = is_deleted(queue)
    state = QueueState.ACTIVE
    if gone or queue.draining_at is not None:
        state = QueueState.DRAINING
    if queue.paused:
        state = QueueState.PAUSED
    return QueueStatus(
        name=queue.name,
        state=state,
        created_at=queue.created_at,
        updated_at=queue.updated_at or queue.created_at,
        paused_at=queue.paused_at,
        draining_at=queue.draining_at,
        counts=found,
        config=queue_configs.effective(queue.name, queue.config, default),
    )

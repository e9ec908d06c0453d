"""The known queues (http-binding §11.1, ojs-queue-config §5): those with a row or with jobs.

Nothing here reads the jobs, and nothing writes.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from django_ojs.conf import settings
from django_ojs.models import KnownName, Queue
from django_ojs.models.known_name import NameKind
from django_ojs.operations import keyset
from django_ojs.operations.keyset import Order, Page, PageRequest
from django_ojs.operations.queue_rows import RESERVED, has_new_jobs, is_deleted
from django_ojs.spec.envelope import check_queue
from django_ojs.spec.errors import NotFound
from django_ojs.spec.queue_config import DEFAULT_POLICY, QueueConfig
from django_ojs.spec.states import WAITING, State
from django_ojs.storage import queue_configs
from django_ojs.storage.figures import counts, known_queues
from django_ojs.storage.figures.counts import ByState


class QueueState(StrEnum):
    """The state of a queue (ojs-queue-config §5.1). A deleted one is shown while its jobs run."""

    ACTIVE = "active"
    PAUSED = "paused"
    #: It accepts no jobs; or it is deleted, while jobs that were active at that time still run.
    DRAINING = "draining"


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueStatus:
    """A queue: its state, its jobs by state, and its effective configuration."""

    name: str
    state: QueueState
    #: When its row was made, or a request named it first. None if only Python code has enqueued to
    #: it: its oldest job does not tell, because earlier ones may be deleted.
    created_at: datetime | None
    #: When its configuration was last changed.
    updated_at: datetime | None
    paused_at: datetime | None
    counts: ByState
    config: QueueConfig
    #: Since when it accepts no jobs. This is also set while the queue is paused.
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
    names = keyset.page_from(found.names, _BY_NAME, wanted, count=lambda: (found.total, False))
    return names.showing(_read(names.rows, found.counts))


def number(within: Collection[str] | None = None) -> int:
    """Return how many queues are known. `within` as in `listing`."""
    return known_queues.by_name(limit=1, within=within).total


def busiest(*, limit: int, text: str = "", with_times: bool = True) -> Page[QueueStatus]:
    """Return the configured queues, and the `limit` others with the most waiting jobs.

    With `text`, only queues whose name contains it are returned. Without `with_times`, `created_at`
    may be missing.
    """
    found = known_queues.by_load(limit=limit, text=text)
    rows = _read(found.names, found.counts, with_times=with_times)
    return Page(rows=rows, count=lambda: (found.total, False))


def get(name: str) -> QueueStatus:
    """Return a queue. Raises NotFound, and InvalidQueue for an invalid name."""
    check_queue(name, settings().limits)
    found = _read([name], counts.by_queue([name]))
    if not found:
        raise not_found(name)
    return found[0]


def not_found(name: str) -> NotFound:
    """Return the error for an unknown queue."""
    return NotFound(
        "There is no queue with this name.",
        details={"resource_type": "queue", "resource_id": name},
    )


def stored_default() -> dict[str, object]:
    """Return the default policy as it is stored."""
    found = Queue.primary.filter(pk=DEFAULT_POLICY)
    return found.values_list("config", flat=True).first() or {}


def _read(
    names: Collection[str], numbers: Mapping[str, ByState], *, with_times: bool = True
) -> list[QueueStatus]:
    """Return the known queues among these names. `numbers` has their jobs by state."""
    if not names:
        return []
    counted = {name: numbers[name] for name in names if numbers.get(name)}
    stored = {queue.name: queue for queue in Queue.primary.filter(pk__in={*names, DEFAULT_POLICY})}
    default = stored[DEFAULT_POLICY].config if DEFAULT_POLICY in stored else {}
    since = {name: queue.created_at for name, queue in stored.items()}
    for name, queue in stored.items():
        if is_deleted(queue) and has_new_jobs(counted.get(name, {})):
            # It exists again, and has nothing of its former configuration.
            stored[name] = Queue(name=name)
    if new := counted.keys() - stored.keys():
        if with_times:
            named = KnownName.primary.filter(kind=NameKind.QUEUE, name__in=new)
            since |= dict(named.values_list("name", "created_at"))
        stored |= {name: Queue(name=name) for name in new}
    return [
        _status(stored[name], since.get(name), counted.get(name, {}), default)
        for name in names
        if name in stored
        and name not in RESERVED
        and (not is_deleted(stored[name]) or counted.get(name, {}).get(State.ACTIVE))
    ]


def _status(
    queue: Queue, since: datetime | None, found: ByState, default: dict[str, object]
) -> QueueStatus:
    gone = is_deleted(queue)
    state = QueueState.ACTIVE
    if gone or queue.draining_at is not None:
        state = QueueState.DRAINING
    if queue.paused:
        state = QueueState.PAUSED
    return QueueStatus(
        name=queue.name,
        state=state,
        created_at=since,
        updated_at=queue.updated_at or since,
        paused_at=queue.paused_at,
        draining_at=queue.draining_at,
        counts=found,
        config=queue_configs.effective(queue.name, queue.config, default),
    )

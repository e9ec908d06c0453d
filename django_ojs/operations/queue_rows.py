"""The rows of queues, and the reserved names among them."""

from django.db.models import QuerySet
from django.db.models.functions import Now

from django_ojs import hooks
from django_ojs.models import Queue
from django_ojs.spec import times
from django_ojs.spec.queue_config import DEFAULT_POLICY
from django_ojs.spec.states import WAITING, State
from django_ojs.storage import database
from django_ojs.storage.database import BATCH
from django_ojs.storage.dialects.base import ALL_QUEUES
from django_ojs.storage.figures import counts
from django_ojs.storage.figures.counts import ByState
from django_ojs.storage.queue_configs import DELETED

RESERVED = (DEFAULT_POLICY, ALL_QUEUES)


def rows() -> QuerySet[Queue]:
    """Return all rows of queues, including deleted queues."""
    return Queue.primary.exclude(pk__in=RESERVED)


def is_deleted(queue: Queue) -> bool:
    """Whether the row belongs to a deleted queue."""
    return DELETED in queue.config


def make(name: str) -> None:
    """Create a queue's row, if it has none."""
    Queue.primary.bulk_create([Queue(name=name)], ignore_conflicts=True)


def touch(name: str) -> Queue:
    """Return a queue's row, locked, and create it if needed, in a write transaction."""
    while True:
        make(name)
        found = Queue.primary.select_for_update().filter(pk=name).first()
        if found is None:  # Deleted in between.
            continue
        if is_deleted(found):
            _deleted().filter(pk=name).update(config={}, created_at=Now(), updated_at=None)
            found.refresh_from_db()
        return found


def mark_deleted(queue: Queue) -> None:
    """Replace a queue's configuration by the mark that it was deleted."""
    now = rows().annotate(now=Now()).values_list("now", flat=True).get(pk=queue.pk)
    queue.config, queue.paused_at = {DELETED: times.format_timestamp(now)}, None
    queue.draining_at, queue.created_at = None, now
    queue.rules = hooks.rules_with(queue.rules, {})
    fields = ["config", "paused_at", "draining_at", "created_at", "rules"]
    queue.save(using=database.alias(), update_fields=fields)


def has_new_jobs(found: ByState) -> bool:
    """Whether jobs of a deleted queue wait, by the counts. If so, the queue exists again."""
    return any(found.get(state) for state in (*WAITING, State.PENDING))


def settle_deleted() -> int:
    """Turn deleted queues with new jobs into new queues, and remove those without any job.

    Return how many rows were changed.
    """
    # All rows are read, because many queues may have only finished jobs left.
    deleted = list(_deleted().values_list("pk", flat=True))
    return sum(_settle(deleted[at : at + BATCH]) for at in range(0, len(deleted), BATCH))


@database.write_transaction
def _settle(deleted: list[str]) -> int:
    counted = counts.by_queue(deleted)
    new = [name for name in deleted if has_new_jobs(counted.get(name, {}))]
    again = database.lock_free(_deleted().filter(pk__in=new))
    ended = [name for name in deleted if not counted.get(name)]
    # `created_at` stays: it is the time of the deletion, and may have been read.
    _deleted().filter(pk__in=again).update(config={}, updated_at=None)
    return len(again) + database.delete_free(_deleted().filter(pk__in=ended))


def put_rules_right() -> int:
    """Give queues the rules of their configurations, and return how many rows were changed.

    A configuration that was written without this package, such as by SQL, left the rules as they
    were.
    """
    stored = Queue.primary.values_list("pk", "rules", "config")
    right = [(name, rules, hooks.rules_with(rules, config)) for name, rules, config in stored]
    return sum(
        database.update_free(Queue.primary.filter(pk=name, rules=before), rules=after)
        for name, before, after in right
        if before != after
    )


def _deleted() -> QuerySet[Queue]:
    return rows().filter(config__has_key=DELETED)

"""The rows of queues, and the reserved names among them."""

from collections.abc import Iterable

from django.db.models import QuerySet
from django.db.models.functions import Now

from django_ojs import hooks
from django_ojs.models import Queue
from django_ojs.spec import times
from django_ojs.spec.queue_config import DEFAULT_POLICY
from django_ojs.storage import database
from django_ojs.storage.dialects.base import ALL_QUEUES
from django_ojs.storage.queue_configs import DELETED

RESERVED = (DEFAULT_POLICY, ALL_QUEUES)


def rows() -> QuerySet[Queue]:
    """All rows that represent queues, deleted ones included."""
    return Queue.primary.exclude(pk__in=RESERVED)


def is_deleted(queue: Queue) -> bool:
    """Whether the row is that of a deleted queue."""
    return DELETED in queue.config


def touch(name: str) -> Queue:
    """Return a queue's row, locked, and create it if needed. Inside a write transaction only."""
    queues = Queue.primary.all()
    while True:
        queues.bulk_create([Queue(name=name)], ignore_conflicts=True)
        found = queues.select_for_update().filter(pk=name).first()
        if found is None:  # Deleted in between.
            continue
        if is_deleted(found):
            revive([name])
            found.refresh_from_db()
        return found


def revive(names: Iterable[str]) -> None:
    """Make deleted queues new ones, with the default configuration."""
    rows().filter(pk__in=names, config__has_key=DELETED).update(
        config={}, paused_at=None, draining_at=None, created_at=Now(), updated_at=None
    )


def mark_deleted(queue: Queue) -> None:
    """Replace a queue's configuration by the mark that it was deleted."""
    now = rows().annotate(now=Now()).values_list("now", flat=True).get(pk=queue.pk)
    queue.config, queue.paused_at = {DELETED: times.format_timestamp(now)}, None
    queue.draining_at = None
    queue.rules = hooks.rules_with(queue.rules, {})
    columns = ["config", "paused_at", "draining_at", "rules"]
    queue.save(using=database.alias(), update_fields=columns)


def forget_deleted(names: Iterable[str]) -> None:
    """Remove the rows of these queues, where they are deleted; for queues without jobs."""
    rows().filter(pk__in=names, config__has_key=DELETED).delete()

"""The rows of the audit trail, and the names of the actions of operators."""

from datetime import datetime
from typing import Final

from django.db.models import QuerySet
from django.utils import timezone

from django_ojs.conf import of
from django_ojs.extensions.audit.models import AuditEntry
from django_ojs.extensions.audit.settings import AuditSettings
from django_ojs.spec import ids
from django_ojs.spec.published import PastAct
from django_ojs.storage import database

#: The names of actions. The first word names the object, or the set of objects.
ACTIONS: Final = (
    *("job.enqueued", "job.retried", "job.cancelled", "job.deleted"),
    *("job.run_now", "job.activated", "job.history_deleted"),
    *("job.signalled", "job.wait_ended", "job.steps_forgotten"),
    *("jobs.retry", "jobs.cancel", "jobs.delete", "jobs.run_now", "bulk.ordered", "bulk.stopped"),
    *("jobs.exported", "jobs.imported", "doctor.repaired", "queue.drained"),
    *("queue.created", "queue.configured", "queue.paused", "queue.resumed", "queue.purged"),
    *("queue.deleted", "cron.created", "cron.changed", "cron.removed", "cron.paused"),
    *("cron.resumed", "cron.run", "worker.directed", "worker.deregistered", "workflow.cancelled"),
    *("api_key.created", "api_key.changed", "api_key.replaced", "api_key.revoked"),
    *("api_key.deleted", "limit_key.overridden", "limit_key.override_removed", "limit_key.opened"),
    "limit_key.paused",
    *("webhook.created", "webhook.changed", "webhook.removed", "webhook.secret_rotated"),
    *("maintenance.started", "maintenance.ended", "outbox.requeued", "outbox.deleted"),
)
OBJECT_TYPES: Final = frozenset(
    {
        *("job", "queue", "cron_job", "api_key", "webhook", "bulk_operation", "worker"),
        *("workflow", "maintenance", "outbox_entry", "check", "limit_key"),
    }
)

_MOST_LATEST: Final = 1_000


def entries() -> QuerySet[AuditEntry]:
    """Return all entries."""
    return AuditEntry.primary.all()


def latest(since: datetime) -> list[PastAct]:
    """Return acts since a time, the latest first, at most _MOST_LATEST."""
    found = entries().filter(pk__gte=ids.first_of(since)).order_by("-pk")[:_MOST_LATEST]
    return [
        PastAct(
            action=entry.action,
            subject=entry.object_id,
            by=entry.actor,
            time=entry.time,
            changes={name: new for name, _, new in entry.rows},
        )
        for entry in found
    ]


def prune(limit: int = database.BATCH) -> int:
    """Delete the oldest entries after their retention time, as a step of maintenance.

    Return how many.
    """
    keep = of(AuditSettings).keep_audit_entries
    old = entries().filter(pk__lt=ids.first_of(timezone.now() - keep))
    return database.delete_free(old.order_by("pk"), limit)

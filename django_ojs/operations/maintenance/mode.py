"""Maintenance mode (ojs-admin-api §12.1): jobs are accepted, and none is handed out.

FETCH returns no job of any queue, and nothing is promoted. PUSH works as before, and so does
everything that ends active jobs. A queue that was paused separately is still paused afterwards.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.db.models.functions import Now

from django_ojs.models import Queue
from django_ojs.operations.access import operator
from django_ojs.spec import times
from django_ojs.spec.errors import InvalidRequest
from django_ojs.spec.field_checks import check_text
from django_ojs.spec.states import State
from django_ojs.storage import database, notify
from django_ojs.storage.dialects.base import ALL_QUEUES
from django_ojs.storage.figures import counts

#: What the audit trail shows of maintenance mode that is off.
_OFF: Final = {"maintenance": "off"}

#: The most characters of a reason: a sentence or two, for the pages that show why no job runs.
MAX_REASON = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class MaintenanceStatus:
    """Whether maintenance mode is on, since when, why, and until when it was meant to last."""

    enabled: bool
    enabled_at: datetime | None = None
    reason: str | None = None
    estimated_end: datetime | None = None


def status() -> MaintenanceStatus:
    """Return whether maintenance mode is on. It only reads."""
    row = Queue.primary.filter(pk=ALL_QUEUES).first()
    return _as_value(row)


def enable(
    *, reason: str | None = None, estimated_duration: timedelta | None = None
) -> MaintenanceStatus:
    """Stop handing out and promoting jobs, and return the new status.

    Enabling it again keeps the time it was enabled at, and replaces the reason and the estimate.
    Only `disable` ends it: the estimate is information for operators. Raises InvalidRequest.
    """
    check(reason, estimated_duration)
    return _enable(reason, estimated_duration)


@database.write_transaction
def _enable(reason: str | None, estimated_duration: timedelta | None) -> MaintenanceStatus:
    queues = Queue.primary.all()
    _, created = queues.get_or_create(name=ALL_QUEUES)
    queues.filter(pk=ALL_QUEUES, paused_at__isnull=True).update(paused_at=Now())
    row = queues.annotate(now=Now()).select_for_update().get(pk=ALL_QUEUES)
    before = {} if created else _shown(row)
    config: dict[str, Any] = {}
    if reason is not None:
        config["reason"] = reason
    if estimated_duration is not None:
        estimated_end = row.now.astimezone(UTC) + estimated_duration
        config["estimated_end"] = times.format_timestamp(estimated_end)
    row.config = config
    row.save(using=database.alias(), update_fields=["config"])
    changes = operator.changed(before or _OFF, _shown(row))
    operator.acted("maintenance.started", changes=changes)
    return _as_value(row)


def check(reason: str | None, estimated_duration: timedelta | None) -> None:
    """Raise InvalidRequest for values that `enable` does not accept."""
    if reason is not None:
        check_text(reason, "reason", longest=MAX_REASON)
    if estimated_duration is not None and estimated_duration <= timedelta(0):
        raise InvalidRequest(
            "estimated_duration must be longer than zero.", details={"field": "estimated_duration"}
        )


def disable() -> MaintenanceStatus:
    """Hand out jobs again, and return the new status. When it is off, this changes nothing."""
    if _disable():
        by_queue = counts.by_queue()
        notify.workers_of(name for name, states in by_queue.items() if states.get(State.AVAILABLE))
    return MaintenanceStatus(enabled=False)


@database.write_transaction
def _disable() -> bool:
    row = Queue.primary.select_for_update().filter(pk=ALL_QUEUES).first()
    if row is None:
        return False
    Queue.primary.filter(pk=ALL_QUEUES).delete()
    operator.acted("maintenance.ended", changes=operator.changed(_shown(row), _OFF))
    return True


def _shown(row: Queue) -> dict[str, Any]:
    """Return what the audit trail shows of maintenance mode that is on."""
    return {"maintenance": "on", **row.config}


def _as_value(row: Queue | None) -> MaintenanceStatus:
    if row is None or row.paused_at is None:
        return MaintenanceStatus(enabled=False)
    end = row.config.get("estimated_end")
    return MaintenanceStatus(
        enabled=True,
        enabled_at=row.paused_at,
        reason=row.config.get("reason"),
        estimated_end=None if end is None else times.parse_timestamp(end, "estimated_end"),
    )

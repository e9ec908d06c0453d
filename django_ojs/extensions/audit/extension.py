"""The audit trail: which operator did what to which object, and what changed.

An act is one row, which is stored with the change, and one line of the log, after the commit.
`operations.access.operator` tells who acts.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from django.db.models import Model

from django_ojs.extension import Act, DueStep, Extension, Hooks
from django_ojs.extensions.audit.models import AuditEntry
from django_ojs.extensions.audit.settings import AuditSettings
from django_ojs.operations.access.operator import MAX_NAME, log_fields, printable
from django_ojs.spec.published import PastAct
from django_ojs.storage import database

logger = logging.getLogger("django_ojs")

_EMPTY: Final[tuple[object, ...]] = (None, "", [], {})


class AuditExtension(Extension):
    """Records acts."""

    name = "audit"
    number = 4
    settings = AuditSettings

    def hooks(self) -> Hooks:
        """Return the hooks; no setting changes them."""
        return Hooks(acted=_record)

    def due_steps(self) -> Sequence[DueStep]:
        """Delete old entries."""
        from django_ojs.extensions.audit import storage

        return (DueStep(run=storage.prune, interval=60.0),)

    def past_acts(self, since: datetime) -> Sequence[PastAct]:
        """Return the entries since then."""
        from django_ojs.extensions.audit import storage

        return storage.latest(since)

    def pages(self) -> Mapping[type[Model], str]:
        """Return the pages of its model."""
        from django_ojs.extensions.audit.models import AuditEntry

        return {AuditEntry: "django_ojs.extensions.audit.admin.AuditEntryAdmin"}

    def panels(self) -> Sequence[Any]:
        """Return what operators did to a job."""
        from django_ojs.extensions.audit.admin_rows import JOB_HISTORY

        return (JOB_HISTORY,)

    def history(self, request: Any, model: str, key: str) -> Sequence[tuple[str, Any]]:
        """Return the entries about an object."""
        from django_ojs.extensions.audit.admin_rows import history_of

        rows = history_of(request, model, key)
        return [("django_ojs/admin/audit_rows.html", rows)] if rows else []


def _record(act: Act) -> Callable[[Mapping[str, Any]], None]:
    """Store an entry. Return a function that adds what is known later."""
    entry = AuditEntry(
        actor_kind=act.actor.kind,
        actor=printable(act.actor.name),
        source_ip=act.actor.source_ip[:64],
        action=act.action,
        object_type=act.object_type,
        object_id=act.object_id[:MAX_NAME],
        # A field that was empty and is empty has not changed.
        changes={
            name: list(pair)
            for name, pair in act.changes.items()
            if not all(value in _EMPTY for value in pair)
        },
        detail={name: value for name, value in act.detail.items() if value not in _EMPTY},
    )
    entry.save(using=database.alias(), force_insert=True)
    database.after_commit(lambda: _log(entry, act.actor.correlation_id))
    return lambda detail: _complete(entry, detail)


def _log(entry: AuditEntry, correlation_id: str) -> None:
    """Log an act without the values that it changed: the row has them."""
    extra = log_fields(
        entry.action,
        principal=entry.actor,
        source_ip=entry.source_ip,
        correlation_id=correlation_id,
        outcome="success",
        detail={"object": f"{entry.object_type}/{entry.object_id}", "door": entry.actor_kind},
    )
    logger.info("%s of %s by %s", entry.action, extra["detail"]["object"], entry.actor, extra=extra)


def _complete(entry: AuditEntry, detail: Mapping[str, Any]) -> None:
    entry.detail = {**entry.detail, **detail}
    database.retried(lambda: entry.save(using=database.alias(), update_fields=["detail"]))

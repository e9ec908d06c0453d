"""How an act is recorded: a row, stored with the change, and a line of the log after the commit."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from django_ojs.extension import Act
from django_ojs.extensions.audit.models import AuditEntry
from django_ojs.operations.access.operator import MAX_NAME, log_fields, printable
from django_ojs.storage import database

logger = logging.getLogger("django_ojs")

_EMPTY: Final[tuple[object, ...]] = (None, "", [], {})


def record(act: Act) -> Callable[[Mapping[str, Any]], None]:
    """Store an act with the change, and log it after the commit.

    Return a function that adds details that are known later.
    """
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

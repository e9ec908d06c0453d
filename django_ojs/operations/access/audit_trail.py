"""The audit trail: which operator did what to which object, and what changed.

An act is one row, which is stored with the change, and one line of the log, after the commit.

A door for operators (the admin, the HTTP API, `manage.py ojs`) names the operator with `acting`;
the operations call `record` in the transaction of their change. What the code of a project does by
itself has no operator and leaves no entry, so that a job that cancels others is not slowed down.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import QuerySet
from django.utils import timezone

from django_ojs.conf import settings
from django_ojs.models import ActorKind, AuditEntry
from django_ojs.spec import ids
from django_ojs.storage import database

logger = logging.getLogger("django_ojs")

#: What operators do. The first word is the object, or what has several of them.
ACTIONS: Final = (
    *("job.enqueued", "job.retried", "job.cancelled", "job.deleted"),
    *("job.run_now", "job.activated", "job.history_deleted"),
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

_EMPTY: Final[tuple[object, ...]] = (None, "", [], {})

#: Characters of a name; a longer one is cut off.
_MAX_NAME: Final = 255


@dataclass(frozen=True, kw_only=True, slots=True)
class Actor:
    """An operator, the address of the client, and the id of its request over HTTP."""

    kind: ActorKind
    name: str
    source_ip: str = ""
    correlation_id: str = ""


_current: Final[ContextVar[Actor | None]] = ContextVar("django_ojs_actor", default=None)


@contextmanager
def acting(actor: Actor | None) -> Iterator[None]:
    """Name the operator of the changes within the block."""
    token = begin(actor)
    try:
        yield
    finally:
        end(token)


def begin(actor: Actor | None) -> Token[Actor | None]:
    """Name the operator until `end`, as `acting` does, for code that each request runs."""
    return _current.set(actor)


def end(token: Token[Actor | None]) -> None:
    """Name the operator again who was named before."""
    _current.reset(token)


def record(
    action: str,
    object_id: object = "",
    *,
    changes: Mapping[str, tuple[Any, Any]] | None = None,
    object_type: str = "",
    **detail: Any,
) -> AuditEntry | None:
    """Store an entry in the caller's transaction, and return it; None without an operator.

    `changes`: the old and the new value of each field. The type of the object is the first word of
    the action, if it is not given.
    """
    actor = _current.get()
    if actor is None:
        return None
    entry = AuditEntry(
        actor_kind=actor.kind,
        actor=printable(actor.name),
        source_ip=actor.source_ip[:64],
        action=action,
        object_type=object_type or action.partition(".")[0],
        object_id=str(object_id)[:_MAX_NAME],
        # A field that was empty and is empty has not changed.
        changes={
            name: list(pair)
            for name, pair in (changes or {}).items()
            if not all(value in _EMPTY for value in pair)
        },
        detail={name: value for name, value in detail.items() if value not in _EMPTY},
    )
    entry.save(using=database.alias(), force_insert=True)
    database.after_commit(lambda: _log(entry, actor.correlation_id))
    return entry


def log_fields(
    event_type: str,
    *,
    principal: str,
    source_ip: str,
    correlation_id: str,
    outcome: str,
    detail: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the attributes of a line of the log about an act or a denied request.

    ojs-security §11.2 names them; the formatter adds the time.
    """
    return {
        "event_type": event_type,
        "principal": principal,
        "source_ip": source_ip,
        "correlation_id": correlation_id,
        "outcome": outcome,
        "detail": detail,
    }


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


def complete(entry: AuditEntry | None, **detail: Any) -> None:
    """Add what an operation of many transactions has done to its entry, which came first."""
    if entry is not None:
        entry.detail = {**entry.detail, **detail}
        database.retried(lambda: entry.save(using=database.alias(), update_fields=["detail"]))


def changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the members that differ, for `changes`. A member that is missing is None."""
    names = dict.fromkeys([*old, *new])
    pairs = {name: (old.get(name), new.get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def flattened(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the members of nested objects, by names with dots."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            found |= flattened(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def entries() -> QuerySet[AuditEntry]:
    """All entries."""
    return AuditEntry.primary.all()


def prune(limit: int = database.BATCH) -> int:
    """Delete the oldest entries after their retention time, as a step of maintenance.

    Return how many.
    """
    old = entries().filter(pk__lt=ids.first_of(timezone.now() - settings().keep_audit_entries))
    keys = list(old.order_by("pk").values_list("pk", flat=True)[:limit])
    if not keys:
        return 0
    return database.retried(lambda: entries().filter(pk__in=keys).delete()[0])


def printable(name: str) -> str:
    """Return a name for a row or a line of the log: that of another class may be anything."""
    return "".join(each if each.isprintable() else "?" for each in name[:_MAX_NAME])

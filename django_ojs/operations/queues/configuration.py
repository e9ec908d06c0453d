"""Create and configure queues (ojs-queue-config §5.2, §6, §7).

Bounds take effect at once. Limits that are not enforced are rejected; see
`queue_config._UNSUPPORTED`.
"""

from typing import Any

from django.db import IntegrityError
from django.db.models.functions import Now

from django_ojs import hooks
from django_ojs.conf import settings
from django_ojs.hooks import publish
from django_ojs.operations import dead_letter_queue
from django_ojs.operations.access import operator
from django_ojs.operations.queue_rows import is_deleted, rows, touch
from django_ojs.operations.queues.status import QueueState, QueueStatus, get, stored_default
from django_ojs.spec.envelope import check_queue
from django_ojs.spec.errors import Conflict
from django_ojs.spec.published import EventType, of_queue
from django_ojs.spec.queue_config import DEFAULT_POLICY, QueueConfig, check, merge
from django_ojs.storage import database, queue_configs
from django_ojs.storage.figures import counts


def create(name: str, config: object = None, *, path: str = "config") -> QueueStatus:
    """Create a queue before its first job, and return it.

    `path` is the path of the configuration in the request. Raises InvalidRequest or a subclass, and
    Conflict for a queue that exists: one that has a row or jobs.
    """
    limits = settings().limits
    check_queue(name, limits, field="name")
    given = check(
        {} if config is None else config, max_envelope_bytes=limits.envelope_bytes, path=path
    )
    _create(name, given)
    return get(name)


@database.write_transaction
def _create(name: str, given: dict[str, Any]) -> None:
    dead_letter_queue.check(name, given.get("dead_letter_queue"))
    existing = rows().select_for_update().filter(pk=name).first()
    if existing is not None and is_deleted(existing):
        _store(name, given)
        hooks.call_within(hooks.registry.queue_configured, name)
    elif existing is not None or counts.by_queue([name]).get(name):
        raise _exists(name)
    else:
        try:
            with database.atomic():
                config = merge({}, given)
                rows().create(name=name, config=config, rules=hooks.rules_of(config))
                hooks.call_within(hooks.registry.queue_configured, name)
        except IntegrityError:  # Another transaction has created it.
            raise _exists(name) from None
    publish(EventType.QUEUE_CREATED, of_queue, name)
    changes = {"state": (None, QueueState.ACTIVE), **_changes({}, merge({}, given))}
    operator.acted("queue.created", name, changes=changes)


def configure(name: str, changes: object, *, path: str = "") -> QueueStatus:
    """Change a queue's own configuration by top-level key, and return the queue.

    A null removes a value, so that the value of the default policy applies. An unknown queue is
    created. Each later FETCH checks the new limits; other processes may enqueue by the former
    configuration for up to a second. Raises InvalidRequest or a subclass.
    """
    limits = settings().limits
    check_queue(name, limits)
    given = check(changes, max_envelope_bytes=limits.envelope_bytes, path=path)
    _change(name, given)
    hooks.call_within(hooks.registry.after_queue_configured, name)
    return get(name)


def configure_default(changes: object, *, path: str = "") -> QueueConfig:
    """Change the default policy by top-level key, and return it. Raises InvalidRequest."""
    limit = settings().limits.envelope_bytes
    given = check(changes, max_envelope_bytes=limit, path=path, default_policy=True)
    _change(DEFAULT_POLICY, given)
    return default_policy()


def default_policy() -> QueueConfig:
    """Return the default policy: the configuration of queues that have none of their own."""
    return queue_configs.effective(DEFAULT_POLICY, stored_default(), {})


def _exists(name: str) -> Conflict:
    return Conflict("A queue with this name exists already.", details={"queue": name})


@database.write_transaction
def _change(name: str, given: dict[str, Any]) -> None:
    if name != DEFAULT_POLICY:
        dead_letter_queue.check(name, given.get("dead_letter_queue"))
    before, after = _store(name, given)
    hooks.call_within(hooks.registry.queue_configured, name)
    publish(EventType.QUEUE_CONFIG_UPDATED, of_queue, name, changed=sorted(given))
    if changes := _changes(before, after):
        operator.acted("queue.configured", name, changes=changes)


def _store(name: str, given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Store changes of a configuration. Return it as it was, and as it is."""
    queue = touch(name)
    before = queue.config
    queue.config = merge(before, given)
    queue.rules = hooks.rules_with(queue.rules, queue.config)
    queue.updated_at = Now()
    queue.save(using=database.alias(), update_fields=["config", "rules", "updated_at"])
    return before, queue.config


def _changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    return operator.changed(operator.flattened(before), operator.flattened(after))

"""Jobs of the outbox for this site: their queue was full, or they came from another database."""

import logging
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from django.core.management.base import CommandError
from django.db import Error, connections
from django.db.models import F

from django_ojs.conf import settings
from django_ojs.extensions.events import commit_order
from django_ojs.extensions.outbox import operations
from django_ojs.extensions.outbox import storage as outbox
from django_ojs.extensions.outbox.breaker import BACKOFF
from django_ojs.extensions.outbox.models import Delivery, HoldsBack, OutboxEntry
from django_ojs.extensions.payloads import offload
from django_ojs.extensions.payloads.reference import KEY
from django_ojs.operations.push import PushOptions, push_batch
from django_ojs.spec import json, retry_policy
from django_ojs.spec.envelope import Envelope, parse
from django_ojs.spec.errors import DuplicateJob, OJSError, QueueFull
from django_ojs.spec.full_policy import LOCAL
from django_ojs.storage import database

#: Jobs that are stored in one transaction.
BATCH = 100

# A transaction that holds the unique key of a job delays only the jobs behind it in its queue.
_ADMITTED: Final = PushOptions(batch=True, admitted=True, is_tried_again=True)

logger = logging.getLogger("django_ojs.extensions.outbox")


def deliver() -> int:
    """Store the jobs for which there is room, in order within each queue. Return how many.

    From an outbox in the jobs' database, a job is moved in one transaction. From another database
    it is stored first, and counts as delivered if it is found stored. A full queue holds back only
    its own jobs, and a tenant at its bound only its jobs in this queue.
    """
    home, count = database.alias(), 0
    for using in operations.aliases():
        try:
            if not outbox.has_any(LOCAL, using):
                continue
            commit_order.assign(OutboxEntry, using)
            for queue in outbox.queues_of(LOCAL, using):
                count += _deliver(queue, using)
        except Error as error:
            if using == home:
                raise
            # An unreachable database must not hold up the other outboxes.
            logger.warning("The outbox of %r cannot be read (%s).", using, type(error).__name__)
            connections[using].close()
    return count


def condition() -> str:
    """Return the SQL condition that `deliver` may find any rows."""
    # The rows of another database can only be queried there.
    return outbox.any_condition() if operations.is_only_here() else "1 = 1"


def deliver_all() -> int:
    """Store all jobs for which there is room. Return how many."""
    count = 0
    while done := deliver():
        count += done
    return count


def empty(using: str) -> None:
    """Store the jobs of an outbox that is about to be dropped. Raises CommandError if some wait.

    It is called in the transaction that drops the table, where no positions are assigned.
    """
    pending = outbox.entries(using).filter(state=Delivery.PENDING)
    order = (F("position").asc(nulls_last=True), "pk")
    for entry in pending.filter(destination=LOCAL).order_by(*order):
        _store_one(entry, using)
    if left := pending.count():
        raise CommandError(
            f"Jobs wait in the outbox of the database {using!r}, and would be lost: {left}. Run "
            "`manage.py ojs_relay --once` until it is empty, or delete them in the admin."
        )


def _deliver(queue: str, using: str) -> int:
    entries = outbox.next_of(LOCAL, using, BATCH, queue)
    if not entries:
        return 0
    with suppress(OJSError):
        if done := _store(entries, using):
            return done
    # Another transaction has locked some of them, or some are rejected: try each one alone.
    done, full = 0, set[str]()
    for entry in entries:
        if entry.tenant_id in full:
            continue
        held_back = _store_one(entry, using)
        if held_back is HoldsBack.QUEUE:
            break
        if held_back is HoldsBack.TENANT:
            full.add(entry.tenant_id)
        else:
            done += 1
    return done


def _store_one(entry: OutboxEntry, using: str) -> HoldsBack | None:
    """Store a job, or record why not. Return which jobs wait with it, if it has to wait."""
    try:
        if not _store([entry], using):
            return HoldsBack.QUEUE
    except DuplicateJob as error:
        if error.details.get("existing_job_id") in (None, str(entry.job_id)):
            outbox.sent([entry.pk], using)
        else:
            outbox.rejected(entry.pk, using, code=error.code, message=error.message)
    except OJSError as error:
        # A bound may be raised, so a job waits even where it does not fit now.
        if error.retryable or isinstance(error, QueueFull):
            wait = BACKOFF.delay(entry.attempts + 1, random.random)
            of_tenant = isinstance(error, QueueFull) and error.part is not None
            held_back = HoldsBack.TENANT if of_tenant else HoldsBack.QUEUE
            outbox.postponed(
                [entry.pk], using,
                code=error.code, message=error.message, wait=wait, holds_back=held_back,
            )  # fmt: skip
            return held_back
        outbox.rejected(entry.pk, using, code=error.code, message=error.message)
    return None


def _store(entries: Sequence[OutboxEntry], using: str) -> int:
    keys = [entry.pk for entry in entries]

    def operation() -> int:
        # Another process may be storing them. The jobs behind them in the queue wait for it.
        if not outbox.lock(keys, using):
            return 0
        _push(entries)
        return outbox.sent(keys, using)

    if using == database.alias():
        return database.in_write_transaction(operation)
    _push(entries)
    return outbox.sent(keys, using)


def _push(entries: Sequence[OutboxEntry]) -> None:
    push_batch([_envelope(entry) for entry in entries], _ADMITTED)


def _envelope(entry: OutboxEntry) -> Envelope:
    document = json.loads_stored(entry.envelope, exact_integers=True)
    assert isinstance(document, dict)
    # The stored job is complete: a default of today must not replace the default of its enqueue.
    envelope = parse(document, default_retry=retry_policy.DEFAULT, limits=settings().limits)
    envelope.unique_key = entry.unique_key
    # Its large arguments were offloaded before it was put into the outbox.
    uris = [str(arg[KEY]) for arg in envelope.args if isinstance(arg, dict) and KEY in arg]
    envelope.offloaded = tuple(uri for uri in uris if offload.owns(uri, envelope.id))
    return envelope

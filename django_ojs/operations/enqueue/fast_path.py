"""The fast path into the database, for jobs that nothing handles and that have nothing special.

Most sites have no enqueue middleware, no instrumentation, no destination in the outbox, no recorded
events and no receiver of the signal, and most queues no tenants. There a job takes the
same checks as in `push_batch`, without its other steps; and of many jobs that differ in their ids
and arguments only, what they share is checked and sent once, their arguments are encoded by one
call, and no envelope and no model is made for each.

A queue with a bound is asked for room by the statement that stores the jobs. Where that cannot
tell, `push_batch` counts.
"""

from collections.abc import Sequence
from datetime import UTC
from typing import Any, Final

from django.db import connections

from django_ojs import middleware, signals
from django_ojs.conf import settings
from django_ojs.models import Job
from django_ojs.operations import draining
from django_ojs.operations.backpressure import bounds
from django_ojs.operations.enqueue import (
    admission,
    after_commit,
    caller_database,
    defaults,
    instrumentation,
    lineage,
)
from django_ojs.operations.enqueue.result import EnqueuedJob, PlainJob, UniformBatch
from django_ojs.operations.events import publish
from django_ojs.spec import ids, json
from django_ojs.spec.envelope import Envelope, sized
from django_ojs.spec.errors import OJSError
from django_ojs.storage import database, queue_configs, testing_hook
from django_ojs.storage.dialects import job_row
from django_ojs.storage.dialects.base import Dialect
from django_ojs.storage.queue_configs import Snapshot

#: Characters of the arguments of all jobs. A `jsonb` has fewer bytes than 256 MiB, and takes more
#: of them than the text.
_MOST: Final = 2**24


def is_open() -> bool:
    """Whether nothing handles jobs between their validation and the database, or after it."""
    current = settings()
    return (
        not current.outbox
        and current.keep_events.isdisjoint(publish.ENQUEUED)
        and instrumentation.current() is None
        and testing_hook.current() is None
        and middleware.frozen_enqueue_chain() is None
        and not signals.job_enqueued.has_listeners(Job)
        and (len(connections.settings) == 1 or caller_database.foreign_transaction() is None)
    )


def store_one(
    envelope: Envelope, *, generated_id: bool = True, exact: bool = False
) -> EnqueuedJob | None:
    """Store a job; None where it is not plain, or was not stored. Only if `is_open`.

    `exact`: only if the statement itself finds that the queue has room. A job that is not stored
    has an id that is taken, or a queue without room; `push_batch` tells which. Raises as `push`
    does.
    """
    if not job_row.is_plain(envelope):
        return None
    lineage.fill_in((envelope,))
    connection = database.connection()
    dialect = database.dialect_of(connection)
    configs = _configs(exact=exact)
    asks = _asks_for_room(envelope.queue, configs, dialect, exact=exact)
    if asks is None:
        return None
    admission.check(envelope, settings().limits, configs)
    draining.check((envelope.queue,))
    defaults.fill_in((envelope,), configs)
    stored = dialect.insert_jobs(
        connection, (envelope,), generated_ids=generated_id, only_if_admitted=asks
    )
    if not stored:
        return None
    after_commit.tell((envelope.queue,), {(envelope.queue, envelope.type): 1})
    return PlainJob(envelope, stored[0]).result()


def store_alike(
    common: Envelope, args: Sequence[list[Any]], *, exact: bool = False
) -> UniformBatch | None:
    """Store jobs in order, all or none: `common` is what they share, `args` those of each.

    None where they are not plain, break a rule, or the database has no statement for them; and with
    `exact`, unless the statement itself finds that the queue has room. Only if `is_open`.
    """
    connection = database.connection()
    dialect = database.dialect_of(connection)
    if not dialect.inserts_uniform or not job_row.is_plain(common):
        return None
    lineage.fill_in((common,))
    limits, configs = settings().limits, _configs(exact=exact)
    asks = _asks_for_room(common.queue, configs, dialect, exact=exact)
    if asks is None:
        return None
    if configs is not None and configs.of(common.queue).max_envelope_bytes is not None:
        return None
    try:
        admission.check(common, limits, configs)
        draining.check((common.queue,))
        text, sizes = json.dumps_lists(args, exact_integers=limits.exact_integers)
        shared = len(json.dumps(sized(common)).encode())
    except OJSError:
        return None  # `push_batch` tells which job it is.
    if shared + max(sizes) > limits.envelope_bytes or len(text) > _MOST:
        return None
    defaults.fill_in((common,), configs)
    keys = ids.many_numbers(len(args))
    created_at, other_bytes = dialect.insert_uniform(
        connection, common, keys, text, sizes, only_if_admitted=asks
    )
    if created_at is None:
        return None
    after_commit.tell((common.queue,), {(common.queue, common.type): len(args)})
    return UniformBatch(
        common=common,
        ids=keys,
        args=args,
        text=text,
        sizes=sizes,
        other_bytes=other_bytes,
        # A sum with a local time of the hour that clocks show twice is an hour off.
        created_at=created_at.astimezone(UTC),
    )


def _configs(*, exact: bool) -> Snapshot | None:
    if exact:
        bounds.apply_settings()
    return queue_configs.current()


def _asks_for_room(
    queue: str, configs: Snapshot | None, dialect: Dialect, *, exact: bool
) -> bool | None:
    """Return whether the statement that stores jobs asks the queue for room.

    None where jobs of this queue are not plain: it has tenants, a bound that only a count can
    decide, or is no name, which has not been checked yet.
    """
    if configs is None:
        return exact
    if not isinstance(queue, str) or configs.of(queue).has_tenants:
        return None
    if not bounds.may_be_bounded(queue):
        return exact
    # Above the warning threshold there are no tickets: asking for one would be in vain.
    return True if dialect.admits_by_ticket and queue not in configs.warned else None

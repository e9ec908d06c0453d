"""The short way into the database for jobs that differ in their ids and arguments only.

What they share is checked and sent once, their arguments are encoded by one call, and no envelope
and no model is made for each. It is for a site where nothing else handles the jobs on their way: no
middleware, no instrumentation, no destination in the outbox, no recorded event, no receiver of a
signal; and for a queue without a bound or tenants. `store` returns None for another queue, and for
jobs that break a rule: then `push_batch` stores or refuses them.
"""

from collections.abc import Sequence
from typing import Any, Final

from django.db import connections

from django_ojs import middleware, signals
from django_ojs.conf import settings
from django_ojs.models import Job
from django_ojs.operations import draining
from django_ojs.operations.backpressure import bounds
from django_ojs.operations.enqueue import admission, defaults, instrumentation, transaction_check
from django_ojs.operations.enqueue.result import EnqueuedJob, UniformBatch
from django_ojs.operations.events import publish
from django_ojs.spec import ids, json
from django_ojs.spec.envelope import Envelope, sized
from django_ojs.spec.errors import OJSError
from django_ojs.storage import database, interceptor, notify, queue_configs
from django_ojs.storage.dialects import job_row
from django_ojs.storage.figures import rollups

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
        and interceptor.current() is None
        and middleware.frozen_enqueue_chain() is None
        and not signals.job_enqueued.has_listeners(Job)
        and (len(connections.settings) == 1 or transaction_check.foreign_transaction() is None)
        and database.dialect().inserts_uniform
    )


def store(common: Envelope, args: Sequence[list[Any]]) -> list[EnqueuedJob] | None:
    """Store jobs in order, all or none: `common` is what they share, `args` those of each.

    Only if `is_open`.
    """
    if not job_row.is_plain(common):
        return None
    limits, configs = settings().limits, queue_configs.current()
    try:
        admission.check(common, limits, configs)
        draining.check([common.queue])
        if configs is not None and (
            configs.of(common.queue).has_tenants
            or configs.of(common.queue).max_envelope_bytes is not None
            or bounds.may_be_bounded(common.queue)
        ):
            return None
        text, sizes = json.dumps_lists(args, exact_integers=limits.exact_integers)
        shared = len(json.dumps(sized(common)).encode())
    except OJSError:
        return None
    if shared + max(sizes) > limits.envelope_bytes or len(text) > _MOST:
        return None
    defaults.fill_in([common], configs)
    keys = ids.many_numbers(len(args))
    connection = database.connection()
    created_at, other_bytes = database.dialect_of(connection).insert_uniform(
        connection, common, keys, text, sizes
    )
    _after_commit(common.queue, common.type, len(args))
    return UniformBatch(
        common=common,
        ids=keys,
        args=args,
        sizes=sizes,
        other_bytes=other_bytes,
        created_at=created_at,
    ).results()


def _after_commit(queue: str, type: str, number: int) -> None:
    alias = database.alias()

    def committed() -> None:
        notify.send(alias, [queue])
        rollups.add(rollups.ENQUEUED, {(queue, type): number})

    database.after_commit(committed, using=alias)

"""The outbox (ojs-framework-adapters §6.2): jobs that commit with the caller's own transaction.

It stores jobs for another server, which a relay sends. It also stores jobs whose queue is full, or
whose caller has a transaction on another database; the maintenance moves these to the jobs' tables.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from django.db import connections, transaction
from django.db.backends.signals import connection_created
from django.db.models import Model

from django_ojs.conf import of, settings
from django_ojs.extension import Batch, Closing, DueStep, Extension, Hooks
from django_ojs.extensions.outbox import operations as outbox
from django_ojs.extensions.outbox.settings import OutboxSettings
from django_ojs.hooks import registry, rejected
from django_ojs.operations.enqueue import caller_database
from django_ojs.operations.enqueue.admission import admit, fill_in_defaults
from django_ojs.operations.enqueue.result import EnqueuedJob, in_order
from django_ojs.spec.errors import OJSError, QueueFull
from django_ojs.spec.full_policy import LOCAL, FullPolicy
from django_ojs.storage import database, queue_configs

if TYPE_CHECKING:
    from django_ojs.finding import Finding

#: Stores the jobs of a batch in this site's database.
Store = Callable[[], list[EnqueuedJob]]


class OutboxExtension(Extension):
    """Routes jobs, and empties the outbox."""

    name = "outbox"
    #: It comes after the storage of large arguments, which jobs of the outbox need too, and before
    #: the bounds of queues, because it takes jobs whose queue is full.
    number = 9
    settings = OutboxSettings

    def __init__(self) -> None:
        self._has_others = False
        # A site may add a database while it runs, such as one for each customer.
        connection_created.connect(self._connected)

    def hooks(self) -> Hooks:
        """Return the hooks. Without another database or a destination, no hook routes jobs."""
        self._has_others = len(connections.settings) > 1
        destinations = bool(of(OutboxSettings).outbox)
        return Hooks(
            around_push=_push if self._has_others or destinations else None,
            around_store=_store,
            kept=outbox.kept,
            worker_threads=_relays if destinations else None,
        )

    def due_steps(self) -> Sequence[DueStep]:
        """Store the jobs for this site for which there is room, and prune."""
        from django_ojs.extensions.outbox import local

        return (
            DueStep(run=local.deliver, interval=1.0, when=local.condition),
            DueStep(run=outbox.prune, interval=10.0, when=outbox.old_condition),
        )

    def _connected(self, **signal: object) -> None:
        if (len(connections.settings) > 1) is not self._has_others:
            registry.compile()

    def may_find(self) -> str:
        """Return the condition that an entry was rejected, or "" if there are other outboxes."""
        from django_ojs.extensions.outbox.findings import condition

        return condition()

    def findings(self) -> Sequence["Finding"]:
        """Return what operators should know about the outbox."""
        from django_ojs.extensions.outbox import findings

        return findings.found()

    def pages(self) -> Mapping[type[Model], str]:
        """Return the pages of its model."""
        from django_ojs.extensions.outbox.models import OutboxEntry

        return {OutboxEntry: "django_ojs.extensions.outbox.admin.OutboxEntryAdmin"}


def _relays(worker_id: str) -> Closing:
    from django_ojs.extensions.outbox.relay_threads import Relays, relays

    return Relays(relays(worker_id))


def _push(batch: Batch, store: Store) -> list[EnqueuedJob]:
    """Store jobs in this database or in an outbox."""
    options = batch.options
    # The alias of the caller's transaction, if it is on another database than the jobs.
    foreign = None
    if options.has_transaction and settings().wrong_database == "outbox":
        foreign = caller_database.foreign_transaction()
    if options.local or (foreign is None and not of(OutboxSettings).outbox):
        return store()
    jobs = list(batch.jobs)
    destinations = [outbox.route(job) or (foreign and LOCAL) for job in jobs]
    if not any(destinations):
        batch.jobs = jobs
        return store()
    elsewhere = [(index, name) for index, name in enumerate(destinations) if name is not None]
    here = [index for index, name in enumerate(destinations) if name is None]
    if options.has_transaction and foreign is None and not here:
        caller_database.check()  # PUSH checks the same, but none of these jobs reaches it.
    results: dict[int, EnqueuedJob] = {}
    using = foreign or database.alias()
    with transaction.atomic(using=using):
        # These jobs come first, because their error must not come after large arguments of the
        # others were stored in S3.
        indexes, names = zip(*elsewhere, strict=True)
        with _index_of_caller(indexes):
            batch.jobs = [jobs[index] for index in indexes]
            results.update(zip(indexes, _add(batch, names, using), strict=True))
        if here:
            with _index_of_caller(here):
                batch.jobs = [jobs[index] for index in here]
                results.update(zip(here, store(), strict=True))
    return [results[index] for index in range(len(jobs))]


def _add(batch: Batch, destinations: Sequence[str], using: str) -> list[EnqueuedJob]:
    """Admit the jobs of a batch, and store them in an outbox."""
    configs = queue_configs.current()
    admitted = admit(batch.jobs, configs, batch=batch.options.batch)
    pairs = [(e, to) for e, to in zip(admitted, destinations, strict=True) if e is not None]
    for envelope, destination in pairs:
        fill_in_defaults([envelope], configs if destination == LOCAL else None)
    stored = outbox.add(
        [e for e, _ in pairs],
        [to for _, to in pairs],
        using=using,
        generated_ids=batch.options.generated_ids,
    )
    return in_order(batch.jobs, admitted, stored)


def _store(batch: Batch, store: Store) -> list[EnqueuedJob]:
    """Store jobs in the outbox if their queue is full, and the caller wants that."""
    policy, options = batch.options.note(FullPolicy), batch.options
    try:
        return store()
    except QueueFull as full:
        if policy is None or not policy.outbox or (full.is_busy and options.is_tried_again):
            raise
        if options.tells_rejected:
            rejected(full, batch.jobs)
    return outbox.add(
        batch.jobs,
        [LOCAL] * len(batch.jobs),
        using=database.alias(),
        generated_ids=options.generated_ids,
    )


@contextmanager
def _index_of_caller(indexes: Sequence[int]) -> Iterator[None]:
    """Let the `index` of an error count all jobs of the caller, and not only this part."""
    try:
        yield
    except OJSError as error:
        if "index" in error.details:
            error.details["index"] = indexes[error.details["index"]]
        raise

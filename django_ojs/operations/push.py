"""PUSH (ojs-core §7.1): store jobs, in the caller's transaction."""

import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Protocol
from uuid import UUID

from django.db import connections
from django.db.models.base import ModelState
from django.db.models.signals import post_init, pre_init

from django_ojs import middleware
from django_ojs.conf import settings
from django_ojs.models import Job
from django_ojs.operations import queue_limits, tell, unique
from django_ojs.spec import retry, times
from django_ojs.spec.envelope import Envelope, Limits, options_of, validate, when_text
from django_ojs.spec.errors import DuplicateJob, InvalidRequest, OJSError, WrongDatabase
from django_ojs.spec.states import State
from django_ojs.storage import database, rollups, transitions, wakeup
from django_ojs.storage.dialects.base import Stored

_FIELDS = tuple(field.attname for field in Job._meta.concrete_fields)
_BLANK = dict.fromkeys(_FIELDS)


class Aside(Protocol):
    """Keeps large arguments elsewhere, so that a reference to them is stored (payload-limits §5).

    The Python client brings one; what comes over HTTP is stored as it is.
    """

    def take(self, envelope: Envelope) -> Envelope:
        """Return the envelope with references in the place of large arguments."""

    def keep(self) -> None:
        """Store what was taken last."""

    def settle(self, stored: Collection[UUID]) -> None:
        """Forget what was kept for other jobs than these."""


def push(
    envelope: Envelope, *, generated_id: bool = False, aside: Aside | None = None
) -> Job | None:
    """Store one job and return it; None when an enqueue middleware dropped it.

    It commits with the transaction that is open on the jobs' database, savepoints included.
    `generated_id` says that the id is ours and cannot be taken. A unique policy that ignores a
    duplicate returns the job that was there, `deduplicated`. Raises an OJSError that names the
    field and the rule.
    """
    with _settled(aside) as jobs:
        jobs += _push([envelope], generated_ids=generated_id, place=False, aside=aside)
    return jobs[0]


def push_batch(
    envelopes: Sequence[Envelope], *, generated_ids: bool = False, aside: Aside | None = None
) -> list[Job | None]:
    """Store jobs in order, in one statement: all or none.

    What a middleware dropped is None in its place.

    An error about one job carries its `index` in `details`.
    """
    if not envelopes:
        raise InvalidRequest("jobs must hold at least one job.", details={"field": "jobs"})
    with _settled(aside) as jobs:
        if generated_ids:
            jobs += _push(envelopes, generated_ids=True, place=True, aside=aside)
        else:
            # A taken id shows only once the others are stored; the savepoint takes them back and
            # leaves the caller's transaction usable.
            jobs += database.retried(lambda: _push_atomically(envelopes, aside))
    return jobs


@contextmanager
def _settled(aside: Aside | None) -> Iterator[list[Job | None]]:
    jobs: list[Job | None] = []
    try:
        yield jobs
    finally:
        if aside is not None:
            aside.settle({job.pk for job in jobs if job is not None})


def _push_atomically(envelopes: Sequence[Envelope], aside: Aside | None) -> list[Job | None]:
    with database.atomic():
        return _push(envelopes, generated_ids=False, place=True, aside=aside)


def _push(
    envelopes: Sequence[Envelope], *, generated_ids: bool, place: bool, aside: Aside | None
) -> list[Job | None]:
    _refuse_other_transactions()
    chain = middleware.enqueue_chain()
    chain.freeze()
    accepted: list[Envelope | None] = []
    for index, envelope in enumerate(envelopes):
        try:
            accepted.append(_prepare(envelope, chain, aside))
        except OJSError as error:
            if place:
                error.details.setdefault("index", index)
            raise
    kept = [envelope for envelope in accepted if envelope is not None]
    if not kept:
        return [None] * len(accepted)
    store = partial(_store, generated_ids=generated_ids)
    try:
        if any(envelope.unique is not None for envelope in kept):
            jobs = iter(unique.store(kept, store))
        else:
            jobs = iter(store(kept))
    except DuplicateJob as error:
        if place:  # Its index counts what was stored, the caller's what was asked for.
            asked = [index for index, envelope in enumerate(accepted) if envelope is not None]
            error.details["index"] = asked[error.details.get("index", 0)]
        else:
            error.details.pop("index", None)
        raise
    return [None if envelope is None else next(jobs) for envelope in accepted]


def _store(envelopes: Sequence[Envelope], *, generated_ids: bool) -> list[Job]:
    """Store jobs that were accepted, in one statement, and tell of them."""
    with tell.together(*tell.PUSHED):
        stored = {job.id: job for job in transitions.push(envelopes, generated_ids=generated_ids)}
        wakeup.announce(
            envelope.queue for envelope in envelopes if stored[envelope.id].state == State.AVAILABLE
        )
        rollups.note_after_commit(
            rollups.ENQUEUED, [(envelope.queue, envelope.type) for envelope in envelopes]
        )
        make = _model_maker()
        jobs = [_job(envelope, stored[envelope.id], make) for envelope in envelopes]
        tell.pushed(jobs)
    return jobs


def _prepare(
    envelope: Envelope, chain: middleware.EnqueueChain, aside: Aside | None
) -> Envelope | None:
    limits = settings().limits
    if aside is None:
        return _accept(envelope, chain, limits)
    # What is kept elsewhere does not count.
    passed = _accept(envelope, chain, replace(limits, envelope_bytes=sys.maxsize))
    if passed is not None:
        passed = aside.take(passed)
        validate(passed, limits)
        queue_limits.check(passed, limits)
        aside.keep()
    return passed


def _accept(envelope: Envelope, chain: middleware.EnqueueChain, limits: Limits) -> Envelope | None:
    validate(envelope, limits)
    queue_limits.check(envelope, limits)
    if not chain:
        return _with_key(envelope, envelope.args)
    # The key is made of the arguments that were asked for: a middleware may encrypt them
    # (extension-interactions §4). Type, queue and meta are those that come out.
    asked = None if envelope.unique is None else _as_read(envelope.args)
    key, due, expires = envelope.id, envelope.scheduled_at, envelope.expires_at
    passed = chain.run(envelope)
    if passed is None:
        return None
    if passed.id != key:
        raise InvalidRequest(
            "id must not be changed by an enqueue middleware.", details={"field": "id"}
        )
    # A middleware may change anything else; what it made is checked like what a client sent.
    passed.document = None
    validate(passed, limits)
    queue_limits.check(passed, limits)
    if passed.scheduled_at != due:
        passed.scheduled_at_text = _text(passed.scheduled_at)
    if passed.expires_at != expires:
        passed.expires_at_text = _text(passed.expires_at)
    return _with_key(passed, passed.args if asked is None else asked)


def _with_key(envelope: Envelope, args: list[Any]) -> Envelope:
    if envelope.unique is not None:
        envelope.unique_key = envelope.unique.key(
            type=envelope.type, queue=envelope.queue, args=args, meta=envelope.meta
        )
    return envelope


def _text(when: datetime | timedelta | None) -> str | None:
    return None if when is None else when_text(None, when)


def _refuse_other_transactions() -> None:
    alias = database.alias()
    if connections[alias].in_atomic_block:
        return
    for other in connections.all(initialized_only=True):
        if other.in_atomic_block and other.alias != alias:
            message = (
                f"A job was enqueued inside atomic(using={other.alias!r}), but jobs are stored in "
                f"{alias!r}: it would not roll back with that transaction. Enqueue inside "
                f"atomic(using={alias!r}), enqueue after the transaction, or route the models of "
                "both to one database; OJS = {'WRONG_DATABASE': 'warn'} turns this error into a "
                "warning."
            )
            if settings().wrong_database == "error":
                raise WrongDatabase(message)
            warnings.warn(message, RuntimeWarning, stacklevel=6)
            return


def _job(envelope: Envelope, stored: Stored, make: Callable[[dict[str, Any]], Job]) -> Job:
    options = options_of(envelope)
    # A relative time was made absolute by the database.
    if (
        envelope.scheduled_at is not None
        and "scheduled_at" not in options
        and stored.due_at is not None
    ):
        options["scheduled_at"] = times.format_timestamp(stored.due_at)
    if (
        envelope.expires_at is not None
        and "expires_at" not in options
        and stored.expires_at is not None
    ):
        options["expires_at"] = times.format_timestamp(stored.expires_at)
    values = {
        "id": envelope.id,
        "type": envelope.type,
        "queue": envelope.queue,
        "state": stored.state,
        "priority": envelope.priority,
        "args": _as_read(envelope.args),
        "meta": _as_read(envelope.meta),
        "options": _as_read(options),
        "attempt": 0,
        "max_attempts": (envelope.retry or retry.DEFAULT).max_attempts,
        "returned": 0,
        "run": 0,
        "timeout_ms": envelope.timeout_ms,
        "visibility_timeout_ms": envelope.visibility_timeout_ms,
        "created_at": stored.created_at,
        "enqueued_at": stored.enqueued_at,
        "due_at": stored.due_at,
        "expires_at": stored.expires_at,
        "unique_key": envelope.unique_key,
        "dead_letter": False,
    }
    return make(values)


def _model_maker() -> Callable[[dict[str, Any]], Job]:
    alias = database.alias()
    if pre_init.has_listeners(Job) or post_init.has_listeners(Job):
        return lambda values: Job.from_db(alias, _FIELDS, [values.get(name) for name in _FIELDS])
    return partial(_quick_model, alias)


def _quick_model(alias: str, values: dict[str, Any]) -> Job:
    # What `from_db` makes, in a fifth of its time: it shows with a thousand.
    job = Job.__new__(Job)
    job.__dict__.update(_BLANK)
    job.__dict__.update(values)
    job._state = ModelState()
    job._state.adding, job._state.db = False, alias
    return job


def _as_read(value: Any) -> Any:
    # As the database will give it back, and nobody else's: tuples as lists, all containers new.
    if isinstance(value, (list, tuple)):
        return [_as_read(item) for item in value]
    if isinstance(value, dict):
        return {name: _as_read(item) for name, item in value.items()}
    return value

"""What becomes of an envelope before it is stored: it is checked, and passes the middleware."""

import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from django_ojs import middleware
from django_ojs.conf import settings
from django_ojs.models import Job
from django_ojs.operations.enqueue import size_limits
from django_ojs.operations.enqueue.stored_job import as_read
from django_ojs.spec.envelope import Envelope, Limits, validate, when_text
from django_ojs.spec.errors import InvalidRequest, OJSError


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


def settled(aside: Aside | None) -> AbstractContextManager[list[Job | None]]:
    """Return a list for the jobs that are stored; what was kept for others is forgotten."""
    # Most sites keep nothing elsewhere, and every job comes through here.
    return nullcontext([]) if aside is None else _settled(aside)


@contextmanager
def _settled(aside: Aside) -> Iterator[list[Job | None]]:
    jobs: list[Job | None] = []
    try:
        yield jobs
    finally:
        aside.settle({job.pk for job in jobs if job is not None})


def accept(
    envelopes: Sequence[Envelope], *, place: bool, aside: Aside | None = None
) -> list[Envelope | None]:
    """Check jobs and pass them through the enqueue middleware; what that dropped is None.

    With `place` an error carries the `index`. Raises an OJSError that names the field and the rule.
    """
    chain = middleware.enqueue_chain()
    chain.freeze()
    accepted: list[Envelope | None] = []
    for index, envelope in enumerate(envelopes):
        try:
            accepted.append(_accept_one(envelope, chain, aside))
        except OJSError as error:
            if place:
                error.details.setdefault("index", index)
            raise
    return accepted


def _accept_one(
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
        size_limits.check(passed, limits)
        aside.keep()
    return passed


def _accept(envelope: Envelope, chain: middleware.EnqueueChain, limits: Limits) -> Envelope | None:
    validate(envelope, limits)
    size_limits.check(envelope, limits)
    if not chain:
        return _with_key(envelope, envelope.args)
    # The key is made of the arguments that were asked for: a middleware may encrypt them
    # (extension-interactions §4). Type, queue and meta are those that come out.
    asked = None if envelope.unique is None else as_read(envelope.args)
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
    size_limits.check(passed, limits)
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

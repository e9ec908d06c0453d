"""Admission: validation, enqueue middleware, the unique key and defaults."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from django_ojs import middleware
from django_ojs.conf import settings
from django_ojs.operations.enqueue.result import as_stored
from django_ojs.spec import json, retry_policy
from django_ojs.spec.envelope import (
    AlikeJobs,
    Envelope,
    Limits,
    check_size,
    distinct,
    sized,
    validate,
    when_text,
)
from django_ojs.spec.errors import InvalidRequest, JobTypeNotAllowed, OJSError
from django_ojs.storage.queue_configs import Snapshot

#: Returns the envelope to store in place of an admitted one.
Change: TypeAlias = Callable[[Envelope], Envelope]


def admit(
    envelopes: Sequence[Envelope],
    configs: Snapshot | None,
    *,
    batch: bool,
    change: Change | None = None,
) -> Sequence[Envelope | None]:
    """Return the jobs as they are to be stored, with None for each that a middleware dropped.

    `configs` are the configurations of their queues. `change` is called with each job after the
    middleware, and limits of the job's size apply to what it returns.

    With `batch`, an error carries the `index` of its job. Raises an OJSError that names the field
    and the rule.
    """
    chain = middleware.frozen_enqueue_chain()
    limits = settings().limits
    if (
        chain is None
        and change is None
        and type(envelopes) is AlikeJobs
        and _are_good(envelopes, limits, configs)
    ):
        return envelopes
    admitted: list[Envelope | None] = []
    for index, envelope in enumerate(envelopes):
        try:
            if change is not None:
                admitted.append(_admit_and_change(envelope, chain, limits, configs, change))
            elif chain is not None or envelope.unique is not None:
                admitted.append(_admit(envelope, chain, limits, configs))
            else:
                check(envelope, limits, configs)
                admitted.append(envelope)
        except OJSError as error:
            if batch:
                error.details.setdefault("index", index)
            raise
    return admitted


def fill_in_defaults(envelopes: Sequence[Envelope], configs: Snapshot | None) -> None:
    """Fill in what neither the caller nor the handler gave, from the queue or the settings.

    See queue-config §6.2. `configs` is None where no queue of this server is configured, and for
    the queues of another server. A policy that the caller gave in part was completed from the
    settings alone.
    """
    default_retry = settings().default_retry
    if configs is None and default_retry is retry_policy.DEFAULT:
        return
    for envelope in distinct(envelopes):
        if configs is not None:
            config = configs.of(envelope.queue)
            envelope.timeout_ms = envelope.timeout_ms or config.default_timeout_ms
            envelope.visibility_timeout_ms = (
                envelope.visibility_timeout_ms or config.visibility_timeout_ms
            )
            envelope.retry = envelope.retry or config.default_retry
        if envelope.retry is None and default_retry is not retry_policy.DEFAULT:
            envelope.retry = default_retry


def _are_good(jobs: AlikeJobs, limits: Limits, configs: Snapshot | None) -> bool:
    """Check alike jobs together. Return False if each must be checked by itself."""
    try:
        check(jobs.common, limits, configs)
        if configs is not None and configs.of(jobs.common.queue).max_envelope_bytes is not None:
            return False
        jobs.encode(exact_integers=limits.exact_integers)
        shared = len(json.dumps(sized(jobs.common)).encode())
    except OJSError:
        return False
    return shared + max(jobs.sizes) <= limits.envelope_bytes


def check_queue_size(envelope: Envelope, limits: Limits, configs: Snapshot) -> None:
    """Reject an envelope over the limit of its queue, if the queue has one (payload-limits §4.6).

    A document of a client is measured as it was sent, and an envelope made in Python as `sized`
    returns it. A limit above `limits` has no effect. Raises PayloadTooLarge.
    """
    limit = configs.of(envelope.queue).max_envelope_bytes
    if limit is not None and limits.envelope_bytes < sys.maxsize:
        document = sized(envelope) if envelope.document is None else envelope.document
        check_size(document, replace(limits, envelope_bytes=limit))


def _admit_and_change(
    envelope: Envelope,
    chain: middleware.EnqueueChain | None,
    limits: Limits,
    configs: Snapshot | None,
    change: Change,
) -> Envelope | None:
    # The size is checked after `change`, because arguments that it takes out of the job, such as
    # offloaded ones, do not count.
    passed = _admit(envelope, chain, replace(limits, envelope_bytes=sys.maxsize), configs)
    if passed is not None:
        passed = change(passed)
        check(passed, limits, configs)
    return passed


def _admit(
    envelope: Envelope,
    chain: middleware.EnqueueChain | None,
    limits: Limits,
    configs: Snapshot | None,
) -> Envelope | None:
    check(envelope, limits, configs)
    if chain is None:
        return envelope if envelope.unique is None else _with_key(envelope, envelope.args)
    # The key is computed from the arguments that the caller gave: a middleware may encrypt them
    # (extension-interactions §4). Type, queue and meta are taken after the middleware.
    args = None if envelope.unique is None else as_stored(envelope.args)
    key, due, expires = envelope.id, envelope.scheduled_at, envelope.expires_at
    passed = chain.run(envelope)
    if passed is None:
        return None
    if passed.id != key:
        raise InvalidRequest(
            "id must not be changed by an enqueue middleware.", details={"field": "id"}
        )
    # A middleware may change anything else; its envelope is validated as a client's is.
    passed.document = None
    check(passed, limits, configs)
    if passed.scheduled_at != due:
        passed.scheduled_at_text = _text(passed.scheduled_at)
    if passed.expires_at != expires:
        passed.expires_at_text = _text(passed.expires_at)
    if passed.unique is None:
        return passed
    return _with_key(passed, passed.args if args is None else args)


def check(envelope: Envelope, limits: Limits, configs: Snapshot | None) -> None:
    """Check a job by the rules of the envelope and of its queue. Raises an OJSError."""
    validate(envelope, limits)
    if configs is None:
        return
    check_queue_size(envelope, limits, configs)
    config = configs.of(envelope.queue)
    if not config.allows_type(envelope.type):
        raise JobTypeNotAllowed.of("type", "is not among the allowed_job_types of its queue")
    for check_job in config.job_checks:
        check_job(envelope)


def _with_key(envelope: Envelope, args: list[Any]) -> Envelope:
    assert envelope.unique is not None
    envelope.unique_key = envelope.unique.key(
        type=envelope.type, queue=envelope.queue, args=args, meta=envelope.meta
    )
    return envelope


def _text(when: datetime | timedelta | None) -> str | None:
    return None if when is None else when_text(None, when)

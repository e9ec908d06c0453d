"""Where an enqueue goes: into the jobs' table, or into the outbox (framework-adapters §6)."""

from collections.abc import Callable, Sequence

from django.db import transaction

from django_ojs.conf import settings
from django_ojs.models import Job
from django_ojs.operations.enqueue import outbox, transaction_check, when_full
from django_ojs.operations.enqueue.when_full import RAISE, WhenFull
from django_ojs.operations.push import Aside
from django_ojs.spec.envelope import Envelope
from django_ojs.spec.errors import OJSError


def one(
    envelope: Envelope, *, generated_id: bool, aside: Aside | None, full: WhenFull = RAISE
) -> Job | None:
    """Enqueue a job where it belongs. Raises as `push.push` and `outbox.put` do."""
    to = _destination(envelope)
    if to is None:
        return when_full.one(envelope, full, generated_id=generated_id, aside=aside)
    return outbox.put(envelope, to, generated_id=generated_id)


def batch(
    envelopes: Sequence[Envelope],
    *,
    generated_ids: bool,
    aside: Aside | None,
    full: WhenFull = RAISE,
) -> list[Job | None]:
    """Enqueue jobs where each belongs, all or none, and return them in order."""
    wanted = [_destination(envelope) for envelope in envelopes]
    if not any(wanted):
        return when_full.batch(envelopes, full, generated_ids=generated_ids, aside=aside)
    here = [index for index, to in enumerate(wanted) if to is None]
    away = [index for index, to in enumerate(wanted) if to is not None]
    jobs: list[Job | None] = [None] * len(envelopes)

    def store(places: list[int], how: Callable[[list[Envelope]], list[Job | None]]) -> None:
        try:
            stored = how([envelopes[place] for place in places])
        except OJSError as error:
            # Its index counts what was given on, the caller's what was asked for.
            if "index" in error.details:
                error.details["index"] = places[error.details["index"]]
            raise
        for place, job in zip(places, stored, strict=True):
            jobs[place] = job

    using = outbox.alias_for_caller()
    with transaction.atomic(using=using):
        if here:
            store(
                here, lambda e: when_full.batch(e, full, generated_ids=generated_ids, aside=aside)
            )
        names = [name for name in wanted if name is not None]
        store(
            away,
            lambda e: outbox.put_batch(e, names, using=using, generated_ids=generated_ids),
        )
    return jobs


def _destination(envelope: Envelope) -> str | None:
    to = outbox.route(envelope)
    if (
        to is None
        and settings().wrong_database == "outbox"
        and transaction_check.foreign_transaction()
    ):
        return outbox.LOCAL
    return to

"""What an enqueue does where its queue is full (ojs-backpressure §8): raise, wait, or keep it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from django_ojs.models import Job
from django_ojs.operations import push
from django_ojs.operations.backpressure.bounds import Patience
from django_ojs.operations.enqueue import outbox, transaction_check
from django_ojs.operations.enqueue.admission import Aside, accept, settled
from django_ojs.spec.envelope import Envelope
from django_ojs.spec.errors import QueueFull


@dataclass(frozen=True, kw_only=True, slots=True)
class WhenFull:
    """What the caller asked for. QueueFull is raised when neither is set, or the patience is over.

    `keep`: in the outbox of this database, from where the job comes back when there is room.
    """

    patience: Patience | None = None
    keep: bool = False


RAISE: Final = WhenFull()


def one(
    envelope: Envelope, when: WhenFull, *, generated_id: bool, aside: Aside | None
) -> Job | None:
    """Store a job, or do what was asked for. Raises as `push.push` does."""
    if not when.keep:
        return push.push(envelope, generated_id=generated_id, aside=aside, patience=when.patience)
    return _or_keep([envelope], generated_ids=generated_id, aside=aside)[0]


def batch(
    envelopes: Sequence[Envelope], when: WhenFull, *, generated_ids: bool, aside: Aside | None
) -> list[Job | None]:
    """Store jobs, all or none, or do what was asked for. Raises as `push.push_batch` does."""
    if not when.keep:
        return push.push_batch(
            envelopes, generated_ids=generated_ids, aside=aside, patience=when.patience
        )
    return _or_keep(envelopes, generated_ids=generated_ids, aside=aside)


def _or_keep(
    envelopes: Sequence[Envelope], *, generated_ids: bool, aside: Aside | None
) -> list[Job | None]:
    several = len(envelopes) > 1
    with settled(aside) as jobs:
        # Through the middleware once, wherever they go.
        passed = accept(envelopes, place=several, aside=aside)
        transaction_check.refuse_other_transactions()
        try:
            jobs += push.push_accepted(passed, generated_ids=generated_ids, place=several)
        except QueueFull:
            jobs += outbox.put_accepted(passed, generated_ids=generated_ids)
    return jobs

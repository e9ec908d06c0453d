"""What it costs to record every event, in the transaction of the change that it reports."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.benchmarks.contenders.base import Contender
from tests.benchmarks.scale import Scale

if TYPE_CHECKING:
    from tests.benchmarks.field import Field

ENQUEUE, BATCH, DRAIN = "enqueue, events", "enqueue in batches, events", "claim and ACK, events"
RECORDED, LEFT_OUT = "every event recorded", "no event recorded"

#: A worker claims and completes about so many short jobs at a time.
_AT_ONCE = 20
_BATCH = 500


def measure(field: Field, scale: Scale) -> None:
    """Enqueue, claim and complete with and without events, in every round."""
    from tests.benchmarks import contenders

    producer = field.producer(contenders.OURS)
    for round_ in range(scale.rounds):
        for name in (RECORDED, LEFT_OUT):
            found = producer.do("events", jobs=scale.singles, recorded=name == RECORDED)
            for measure, rate in found.items():
                field.results.add(measure, name, round_, rate)


# The rest runs in a producer's process.


def events(contender: Contender, *, jobs: int, recorded: bool) -> dict[str, float]:
    """Return jobs a second that are enqueued one by one, in batches, and claimed and completed."""
    from django.conf import settings
    from django.test import override_settings

    from django_ojs.extensions.events.models import Event
    from django_ojs.operations.push import BATCH as IN_BATCH
    from django_ojs.operations.push import push_batch
    from django_ojs.spec.envelope import Envelope

    contender.reset()
    Event.primary.all().delete()
    rates = {}
    kept = ["*"] if recorded else []
    with override_settings(OJS={**settings.OJS, "KEEP_EVENTS": kept}):
        rates[ENQUEUE] = jobs / contender.singles(range(jobs))
        began = time.perf_counter()
        for _ in range(0, jobs, _BATCH):
            push_batch([Envelope(type="bench.noop") for _ in range(_BATCH)], IN_BATCH)
        rates[BATCH] = -(-jobs // _BATCH) * _BATCH / (time.perf_counter() - began)
        rates[DRAIN] = _drain()
    assert Event.primary.exists() is recorded
    return rates


def _drain() -> float:
    from django_ojs.extension import Known
    from django_ojs.models import Worker
    from django_ojs.operations import ack, beat, fetch

    beat.beat("bench")
    began, done = time.perf_counter(), 0
    while claimed := fetch.fetch(
        ["default"], count=_AT_ONCE, worker_id="bench", due=False, registered=True
    ):
        known = Known(
            jobs={job.id: job for job in claimed}, seconds={job.id: 0.001 for job in claimed}
        )
        done += len(ack.ack_batch("bench", [(job.id, job.run, None) for job in claimed], known))
    took = time.perf_counter() - began
    Worker.primary.filter(pk="bench").delete()
    return done / took

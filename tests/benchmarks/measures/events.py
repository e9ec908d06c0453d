"""What it costs to record each step of each job, beside the events of the default."""

from __future__ import annotations

from tests.benchmarks import contenders
from tests.benchmarks.contenders.base import BATCH, Work
from tests.benchmarks.contenders.ojs import WithEvents
from tests.benchmarks.field import Field
from tests.benchmarks.measures.drain import drain
from tests.benchmarks.scale import Scale

SINGLE = "enqueue with events"
MANY = "batch with events"
DRAIN = "drain with events"

_NAMES = (contenders.OURS, WithEvents.name)


def measure(field: Field, scale: Scale) -> None:
    """Enqueue and drain by turns, with the events of the default and with all of a job."""
    for round_ in range(scale.worker_rounds):
        for name in _NAMES if round_ % 2 else _NAMES[::-1]:
            producer = field.producer(name)
            field.results.add(SINGLE, name, round_, producer.do("singles", jobs=scale.singles))
            many = producer.do("batches", jobs=scale.batches * BATCH)
            field.results.add(MANY, name, round_, many)
            work = Work(setting=contenders.by_name(name).drain_setting)
            jobs = max(20, int(contenders.by_name(name).drain_jobs * scale.drain))
            field.results.add(DRAIN, name, round_, drain(field, name, work, jobs).rate)

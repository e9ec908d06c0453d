"""Enqueueing: one by one, inside a caller's transaction, in batches."""

from __future__ import annotations

from functools import partial

from tests.benchmarks import contenders
from tests.benchmarks.contenders.bare import CountedSQL
from tests.benchmarks.contenders.base import BATCH
from tests.benchmarks.field import Field
from tests.benchmarks.scale import Scale

SINGLE, TRANSACTION, MANY = "enqueue", "transaction", "batch"
UNIQUE, DUPLICATE = "unique enqueue", "duplicate"


def measure(field: Field, scale: Scale) -> None:
    """Let all take turns, a short round each."""
    for round_ in range(scale.rounds):
        names = field.turns(round_, CountedSQL.name)
        for name in names:
            field.attempt(SINGLE, name, partial(_single, field, name, round_, scale))
        rates = field.producer(contenders.OURS).do("unique", jobs=scale.singles)
        field.results.add(UNIQUE, contenders.OURS, round_, rates["new"])
        field.results.add(DUPLICATE, contenders.OURS, round_, rates["duplicate"])
        for name in names:
            if contenders.by_name(name).joins_transactions:
                field.attempt(TRANSACTION, name, partial(_added, field, name, round_, scale))
        for name in names:
            if contenders.by_name(name).has_batches:
                field.attempt(MANY, name, partial(_many, field, name, round_, scale))


def _single(field: Field, name: str, round_: int, scale: Scale) -> None:
    rate = field.producer(name).do("singles", jobs=scale.singles)
    field.results.add(SINGLE, name, round_, rate)


def _added(field: Field, name: str, round_: int, scale: Scale) -> None:
    took = field.producer(name).do("in_transaction", jobs=scale.transactions)
    field.results.add(TRANSACTION, name, round_, took["with"] - took["without"], **took)


def _many(field: Field, name: str, round_: int, scale: Scale) -> None:
    rate = field.producer(name).do("batches", jobs=scale.batches * BATCH)
    field.results.add(MANY, name, round_, rate, setting=f"{BATCH:,} a call")

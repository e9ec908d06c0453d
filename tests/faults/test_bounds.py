"""Promise: a bounded queue never exceeds its bound, whichever process is killed or delayed."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from django.db import connection, transaction

from django_ojs.extensions.backpressure import storage as bounds
from django_ojs.operations import queues
from django_ojs.operations.ack import ack
from django_ojs.operations.fetch import fetch
from django_ojs.operations.push import push_batch
from django_ojs.spec.errors import QueueFull
from django_ojs.storage.figures import counts
from django_ojs.storage.figures.counts import CountKeeper
from tests import fork_server
from tests.databases import ALIASES
from tests.factories import GENERATED, EnvelopeFactory, connected_to
from tests.faults.bouncer import PROGRAM, bouncer
from tests.faults.conftest import FULL, Report
from tests.operations.backpressure.test_bounds import depth
from tests.threads import beside

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=ALIASES),
    pytest.mark.slow,
]

NAME = "bounded"
PRODUCERS = 32
SECONDS = 30.0 if FULL else 3.0
GENEROUS = 30

#: Holds the queue lock, or a given number of jobs, and never commits.
HOLDER = """
import sys, time
import django
django.setup()
from django.db import transaction
from django_ojs.operations.push import push_batch
from tests.factories import GENERATED, EnvelopeFactory
with transaction.atomic():
    push_batch(EnvelopeFactory.create_batch(int(sys.argv[1]), queue="bounded"), GENERATED)
    print("holding", flush=True)
    time.sleep(300)
"""


def bound(depth: int, strategy: str = "reject") -> None:
    queues.configure(NAME, {"backpressure": {"max_depth": depth, "strategy": strategy}})


def add(number: int = 1) -> None:
    push_batch(EnvelopeFactory.create_batch(number, queue=NAME), GENERATED)


@contextmanager
def holder(environment: dict[str, str], number: int) -> Iterator[subprocess.Popen[str]]:
    """Run a process that has added jobs and does not commit."""
    process = fork_server.popen(
        [sys.executable, "-c", HOLDER, str(number)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "holding\n"
        yield process
    finally:
        process.kill()
        process.wait(GENEROUS)
        if process.stdout is not None:
            process.stdout.close()


@pytest.mark.postgresql
def test_who_dies_with_a_turn_leaves_it_to_the_next(process_environment: dict[str, str]) -> None:
    bound(20)
    add(10)
    with holder(process_environment, 10) as process:
        with pytest.raises(QueueFull):
            add()
        process.send_signal(signal.SIGKILL)
        process.wait(GENEROUS)
        deadline = time.monotonic() + GENEROUS
        while depth() == 10 and time.monotonic() < deadline:
            try:
                add(10)
            except QueueFull:
                time.sleep(0.05)
    assert depth() == 20


@pytest.mark.postgresql
def test_an_idle_transaction_does_not_block_other_enqueues_for_ever(
    process_environment: dict[str, str], report: Report
) -> None:
    bound(1_000)
    with holder(process_environment, 5):
        began = time.monotonic()
        for _ in range(100):  # Far from the bound no enqueue waits.
            add()
        far = time.monotonic() - began
        add(600)
        began = time.monotonic()
        with pytest.raises(QueueFull, match="transactions are open"):
            add(250)
        near = time.monotonic() - began
        report(f"beside an idle transaction: 100 jobs in {far:.2f} s; rejected after {near:.2f} s")
        assert near < bounds.LOCK_TIMEOUT + GENEROUS
    assert depth() == 700


@pytest.mark.parametrize("strategy", ["reject", "block", "drop_oldest"])
def test_a_crowd_and_an_operator_who_changes_his_mind(
    strategy: str, report: Report, seed: int
) -> None:
    """All ways to enqueue, at bounds that move, with workers; afterwards the bound holds exactly.

    While it is lowered there may be more than it says: what is there stays.
    """
    said = _crowd(strategy, seed)
    report(f"{strategy}: {said}")


@pytest.mark.postgresql
@pytest.mark.skipif(PROGRAM is None, reason="pgbouncer is not on PATH (package: pgbouncer)")
def test_through_a_transaction_pooler_the_bound_holds_too(report: Report, seed: int) -> None:
    # As many as there are producers: who waits for a turn holds a connection, and so does whom he
    # waits for.
    pooler = bouncer(connection.settings_dict, PRODUCERS + 10)
    with pooler as clients, connected_to(clients):
        report(f"through PgBouncer: {_crowd('reject', seed)}")


def _crowd(strategy: str, seed: int) -> str:
    producers = PRODUCERS if connection.vendor == "postgresql" else 6
    dice = random.Random(seed)
    stop, lowest = threading.Event(), 100
    done = {"stored": 0, "rejected": 0}
    highest = [1_000]
    over: list[tuple[int, int]] = []
    bound(1_000, strategy)

    def repeat(act: Callable[[], None]) -> None:
        while not stop.is_set():
            act()

    def produce() -> None:
        number = dice.choice([1, 1, 1, 7, 60])
        try:
            kind = dice.random()
            if kind < 0.5:
                add(number)
            else:
                with transaction.atomic():
                    add(number)
                    if kind > 0.7:
                        with transaction.atomic():
                            add(number)
                            transaction.set_rollback(kind > 0.85)
                    time.sleep(dice.random() * 0.03)
                    transaction.set_rollback(kind > 0.93)
            done["stored"] += number
        except QueueFull:
            done["rejected"] += 1
            time.sleep(0.002)

    def work() -> None:
        for job in fetch([NAME], count=20):
            ack(job.pk)
        CountKeeper().fold()
        time.sleep(0.01)

    def configure() -> None:
        time.sleep(0.3)
        bound(dice.choice([lowest, 300, 1_000]), strategy)

    def look() -> None:
        if (found := counts.depth(NAME)) > highest[0]:
            over.append((found, highest[0]))
        time.sleep(0.01)

    acts = [*[produce] * producers, work, configure, look]
    with beside(*[partial(repeat, act) for act in acts]):
        time.sleep(SECONDS)
        stop.set()
    assert not over
    # Now it stands still: it fills to the bound and no further.
    bound(1_000, strategy)
    assert depth() <= 1_000
    for number in (100, 1):
        for _ in range(1_001):
            try:
                add(number)
            except QueueFull:
                break
            if strategy == "drop_oldest" and depth() == 1_000:
                break
    assert depth() == counts.depth(NAME) == 1_000
    assert not counts.differences()
    return f"{done['stored']} stored, {done['rejected']} rejected, by {producers} producers"

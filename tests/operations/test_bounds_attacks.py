"""Bounded queues under what others do meanwhile: each of these once let too many in, or too few."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, connections, transaction

from django_ojs.extensions.backpressure import storage as bounds
from django_ojs.extensions.backpressure.models import Bound
from django_ojs.models import Job
from django_ojs.operations import push as pushing
from django_ojs.operations import queues
from django_ojs.operations.activate import activate
from django_ojs.operations.fail import requeue
from django_ojs.operations.fetch import fetch
from django_ojs.operations.push import PushOptions
from django_ojs.operations.retry import retry
from django_ojs.spec.errors import QueueFull
from django_ojs.storage import database
from django_ojs.storage.dialects.postgresql import PostgreSQL
from django_ojs.storage.figures import counts
from tests.factories import GENERATED, EnvelopeFactory, in_state
from tests.operations.backpressure.test_bounds import depth
from tests.threads import at_once, beside, elsewhere
from tests.worker.waiting import BOUND

pytestmark = pytest.mark.django_db(transaction=True)

NAME = "bounded"


def bound(depth: int | None = None, **more: Any) -> None:
    queues.configure(NAME, {"backpressure": {"max_depth": depth, **more}})


def add(number: int = 1, *, queue: str = NAME) -> None:
    pushing.push_batch(EnvelopeFactory.create_batch(number, queue=queue), GENERATED)


def fill(queue: str = NAME) -> int:
    """Add jobs one by one until one is rejected; return how many."""
    stored = 0
    while True:
        try:
            pushing.push(EnvelopeFactory(queue=queue), PushOptions(generated_ids=True))
        except QueueFull:
            return stored
        stored += 1


@contextmanager
def open_elsewhere(act: Callable[[], None]) -> Iterator[None]:
    """Do something in a transaction of another thread's; it commits when the block ends."""
    done, go = threading.Event(), threading.Event()

    def run() -> None:
        with transaction.atomic():
            act()
            done.set()
            go.wait(BOUND)

    with beside(run):
        try:
            assert done.wait(BOUND)
            yield
        finally:
            go.set()


def test_jobs_that_run_may_come_back_and_have_their_places_kept() -> None:
    bound(100)
    add(40)
    running = fetch([NAME], count=40)
    add()  # Nothing waits, so that there is room, and tickets for it.
    for job in running:
        requeue(job.id)
    fill()
    assert depth() == 100


def test_near_the_bound_no_ticket_is_issued_for_the_room_that_running_jobs_may_need() -> None:
    bound(10)
    add(5)
    running = fetch([NAME], count=5)
    for _ in range(9):
        add()  # The last ones are counted under the lock of the queue, which issues tickets.
    for job in running:
        requeue(job.id)
    assert fill() == 0
    assert depth() == 14


@pytest.mark.postgresql
def test_who_looked_under_the_old_bound_gives_nothing_out_under_the_new_one() -> None:
    bound(10_000)
    add()
    row = Bound.objects.filter(pk=NAME)
    seen = connections.create_connection("default")
    try:
        with seen.cursor() as cursor:
            # A look that is about to note what it found, and a configuration in between.
            cursor.execute("SELECT xmin::text FROM ojs_bound WHERE queue = %s", [NAME])
            version = cursor.fetchone()[0]
            bound(10)
            bounds.spend_tickets(NAME, version, 1, 9_000)
    finally:
        seen.close()
    assert row.get().until - row.get().since < 10
    fill()
    assert depth() == 10


@pytest.mark.postgresql
def test_sequences_that_were_set_back_give_no_good_tickets() -> None:
    bound(1_000)
    add(300)
    with connection.cursor() as cursor:
        for slot in range(16):
            cursor.execute(f"ALTER SEQUENCE ojs_ticket_{slot} RESTART")
    Bound.objects.update(since=5_000, until=1_000_000)
    fill()
    assert depth() == 1_000


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has one writer")
def test_a_batch_of_many_shares_keeps_nobody_out_far_from_the_bound() -> None:
    bound(10_000)
    with open_elsewhere(lambda: add(1_500)):
        add()
        with transaction.atomic():
            add(50)
        assert depth() == 51
    assert depth() == 1_551


@pytest.mark.postgresql
def test_batches_in_open_transactions_are_counted_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "LOCK_TIMEOUT", 0.1)  # They are open as long as it waits.
    bound(4_000)
    with open_elsewhere(lambda: add(700)), open_elsewhere(lambda: add(600)):
        with pytest.raises(QueueFull) as caught:
            add(2_800)
        assert "transactions are open" in str(caught.value)
        add(10)
    add(2_690)
    with pytest.raises(QueueFull):
        add()
    assert depth() == 4_000


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has one writer")
def test_several_batches_of_an_open_transaction_are_counted_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "LOCK_TIMEOUT", 0.1)
    bound(640)

    def several() -> None:
        for _ in range(9):
            add(40)

    with open_elsewhere(several), pytest.raises(QueueFull, match="transactions are open"):
        add(300)  # Each batch alone would leave room for it.
    assert depth() == 360


@pytest.mark.postgresql
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_an_old_snapshot_lets_nobody_over_the_bound(level: str) -> None:
    bound(100)
    add(10)
    rejected = []
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        assert depth() == 10
        added = 0
        elsewhere(fill)
        for _ in range(50):
            try:
                with transaction.atomic():
                    add()
                added += 1
            except QueueFull as full:
                rejected.append(full)
        Job.objects.filter(queue=NAME).count()  # The transaction is usable.
    assert rejected
    assert depth() <= 100


@pytest.mark.postgresql
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_an_old_snapshot_lets_stored_jobs_wait_again_where_an_enqueue_finds_room(
    level: str,
) -> None:
    bound(100)
    pending, *discarded = (in_state(s, queue=NAME) for s in ("pending", "discarded", "discarded"))

    def in_old_snapshot(change: Callable[[UUID], Job], job: Job) -> str:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
            return change(job.pk).state

    assert in_old_snapshot(activate, pending) == "available"
    assert in_old_snapshot(retry, discarded[0]) == "available"
    bound(2)
    with pytest.raises(QueueFull):
        in_old_snapshot(retry, discarded[1])
    assert depth() == 2


@pytest.mark.postgresql
def test_a_serializable_transaction_finds_room_in_a_queue_that_was_just_bounded() -> None:
    bound(100)
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        add()
    assert depth() == 1


@pytest.mark.postgresql
def test_connections_of_another_isolation_level_fill_a_queue_to_its_bound() -> None:
    bound(100)
    ours = connection.settings_dict["OPTIONS"]
    kept = dict(ours)
    connection.close()
    ours["isolation_level"] = 3  # REPEATABLE READ
    try:
        assert fill() == 100
        with pytest.raises(QueueFull):
            add()
    finally:
        connection.close()
        ours.clear()
        ours.update(kept)
    assert depth() == 100


@pytest.mark.postgresql
def test_two_that_take_two_queues_in_opposite_order_do_not_wait_for_ever() -> None:
    for queue in ("one", "two"):
        queues.configure(queue, {"backpressure": {"max_depth": 10, "warning_threshold": 0.1}})
        add(2, queue=queue)
    Bound.objects.update(until=-1)  # No tickets: it takes turns.
    ready = threading.Barrier(2)

    def both(first: str, second: str) -> str:
        with transaction.atomic():
            add(queue=first)
            ready.wait(BOUND)
            try:
                add(queue=second)
                outcome = "stored"
            except QueueFull:
                outcome = "rejected"
            add(queue=first)  # The transaction is usable, and its turn is still its own.
        return outcome

    outcomes = at_once([lambda: both("one", "two"), lambda: both("two", "one")])
    assert sorted(outcomes) in (["rejected", "stored"], ["rejected", "rejected"])
    assert depth("one") + depth("two") == 2 + 2 + 4 + outcomes.count("stored")


@pytest.mark.postgresql
@pytest.mark.parametrize("strategy", ["reject", "drop_oldest"])
def test_two_that_find_no_room_at_a_look_do_not_wait_for_each_others_turn(
    strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 20 if strategy == "reject" else 16
    bound(limit, warning_threshold=0.5, strategy=strategy)
    add(16)
    Bound.objects.update(until=-1)  # No tickets: they look.
    looked = threading.Barrier(2)
    look = PostgreSQL.insert_jobs

    def look_together(*args: Any, **values: Any) -> Any:
        stored = look(*args, **values)
        if values["only_if_admitted"]:
            looked.wait(BOUND)
        return stored

    def one() -> None:
        with transaction.atomic():
            add()

    monkeypatch.setattr(PostgreSQL, "insert_jobs", look_together)
    at_once([one, one])
    assert depth() == (18 if strategy == "reject" else limit)


def test_a_savepoint_that_is_rolled_back_gives_its_room_back() -> None:
    bound(10)
    with transaction.atomic():
        for _ in range(5):
            with transaction.atomic():
                add(10)
                transaction.set_rollback(True)
        add(10)
    assert depth() == 10


def test_counts_that_are_repaired_take_back_what_they_let_in() -> None:
    bound(100)
    add(60)
    counts.fold()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE ojs_count SET n = 0 WHERE queue = %s", [NAME])
    bounds.withdraw_tickets()
    bounds.renew_tickets(NAME)
    counts.repair()
    fill()
    assert depth() == 100


def test_settings_are_settled_for_who_only_ever_enqueues_in_transactions(settings: Any) -> None:
    settings.OJS = {**settings.OJS, "QUEUES": {NAME: {"backpressure": {"max_depth": 2}}}}
    with transaction.atomic():
        add()
    assert bounds.configured.queues is not None
    assert NAME in bounds.configured.queues
    with pytest.raises(QueueFull), transaction.atomic():
        add(2)
    settings.OJS = {**settings.OJS, "QUEUES": {}}


@pytest.mark.postgresql
def test_a_long_transaction_that_applies_the_settings_holds_up_nobody(settings: Any) -> None:
    settings.OJS = {**settings.OJS, "QUEUES": {NAME: {"backpressure": {"max_depth": 2}}}}
    with open_elsewhere(add):
        bounds.configured.reset()  # as in another process
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '1s'")
            add(queue="other")
    assert fill() == 1


def test_a_process_opens_no_second_connection_for_bounds_that_are_stored(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.OJS = {**settings.OJS, "QUEUES": {NAME: {"backpressure": {"max_depth": 5}}}}
    add()
    bounds.configured.reset()  # as in another process
    monkeypatch.delattr(database, "elsewhere")
    with transaction.atomic():
        add()
    assert depth() == 2


@pytest.mark.postgresql
def test_settings_whose_bound_the_caller_has_locked_are_applied_later(settings: Any) -> None:
    before = settings.OJS
    settings.OJS = {**before, "QUEUES": {NAME: {"backpressure": {"max_depth": 5}}}}
    add()
    settings.OJS = {**before, "QUEUES": {NAME: {"backpressure": {"max_depth": 3}}}}
    bounds.configured.reset()
    with transaction.atomic():
        assert Bound.objects.select_for_update().get(pk=NAME)
        add()
    assert fill() == 1


@pytest.mark.postgresql
def test_the_first_job_of_a_queue_that_inherits_its_bound_keeps_nobody_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "LOCK_TIMEOUT", 0.1)
    queues.configure_default({"backpressure": {"max_depth": 1_000}})
    with open_elsewhere(add):
        add()
    assert depth() == 2


@pytest.mark.postgresql
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_an_old_snapshot_soon_finds_room_in_a_queue_that_inherits_its_bound(level: str) -> None:
    queues.configure_default({"backpressure": {"max_depth": 1_000}})

    def add_in_old_snapshot() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
            add()

    # Its snapshot does not show the bound, which it has stored for the next one.
    with pytest.raises(QueueFull):
        add_in_old_snapshot()
    add_in_old_snapshot()
    assert depth() == 1


def test_a_bound_that_the_settings_no_longer_have_gives_way_to_the_default(
    settings: Any,
) -> None:
    queues.configure_default({"backpressure": {"max_depth": 5}})
    before = settings.OJS
    settings.OJS = {**before, "QUEUES": {NAME: {"backpressure": {"max_depth": 1_000}}}}
    add(10)
    settings.OJS = before
    # The next deploy is another process.
    bounds.configured.reset()
    with pytest.raises(QueueFull) as caught:
        add()
    assert (caught.value.depth, caught.value.bound) == (10, 5)


@pytest.mark.parametrize("inherited", [False, True])
def test_a_crowd_never_takes_more_bytes_than_there_may_be(inherited: bool) -> None:
    """Jobs of all sizes, alone, in batches and transactions; the bound its own or the default's."""
    limit = 300_000
    config = {"backpressure": {"max_size_bytes": limit}}
    if inherited:
        queues.configure_default(config)
    else:
        queues.configure(NAME, config)
    producers = 16 if connection.vendor == "postgresql" else 4
    rejected: list[int] = []

    def produce(seed: int) -> None:
        dice = random.Random(seed)
        for _ in range(25):
            wanted = [
                EnvelopeFactory(queue=NAME, args=["x" * dice.choice([1, 500, 20_000])])
                for _ in range(dice.choice([1, 1, 4]))
            ]
            try:
                with transaction.atomic() if dice.random() < 0.5 else nullcontext():
                    pushing.push_batch(wanted, GENERATED)
            except QueueFull:
                rejected.append(1)

    at_once([partial(produce, seed) for seed in range(producers)])
    assert rejected
    assert bounds.load(NAME).size <= limit
    taken = sum(Job.objects.filter(queue=NAME).values_list("size_bytes", flat=True))
    assert bounds.load(NAME).size == taken > limit * 0.9

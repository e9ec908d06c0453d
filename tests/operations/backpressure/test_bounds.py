"""Bounded queues (ojs-backpressure): never over the bound, and free far from it."""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction

from django_ojs.extensions.backpressure import storage as bounds
from django_ojs.extensions.backpressure.models import Bound
from django_ojs.extensions.backpressure.operations import (
    pressure_monitor,
    rejection_counts,
    retry_after,
)
from django_ojs.extensions.events.models import Event
from django_ojs.models import Job, Queue
from django_ojs.operations import push as pushing
from django_ojs.operations import queues
from django_ojs.operations.ack import ack
from django_ojs.operations.activate import activate
from django_ojs.operations.enqueue.result import EnqueuedJob
from django_ojs.operations.fetch import fetch
from django_ojs.operations.jobs import bulk_step, dead_letters
from django_ojs.operations.push import PushOptions
from django_ojs.operations.retry import retry
from django_ojs.spec.errors import QueueFull
from django_ojs.spec.full_policy import FullPolicy, WaitPolicy
from django_ojs.spec.unique_policy import UniquePolicy
from django_ojs.storage import queue_configs
from django_ojs.storage.figures import counts
from django_ojs.storage.figures.counts import CountKeeper
from tests.factories import EnvelopeFactory, in_line, in_state
from tests.threads import at_once, beside
from tests.worker.waiting import BOUND

pytestmark = pytest.mark.django_db(transaction=True)

NAME = "bounded"


def bound(depth: int | None = None, *, queue: str = NAME, **more: Any) -> None:
    queues.configure(queue, {"backpressure": {"max_depth": depth, **more}})


def add(number: int = 1, *, queue: str = NAME, **more: Any) -> list[EnqueuedJob]:
    if number == 1:
        stored = [
            pushing.push(EnvelopeFactory(queue=queue, **more), PushOptions(generated_ids=True))
        ]
    else:
        stored = pushing.push_batch(EnvelopeFactory.create_batch(number, queue=queue, **more))
    in_line(stored)
    return stored


def waiting(seconds: float) -> PushOptions:
    return PushOptions(notes=(FullPolicy(wait=WaitPolicy(seconds=seconds)),), checks_bound=True)


def depth(queue: str = NAME) -> int:
    return Job.objects.filter(
        queue=queue, state__in=["available", "scheduled", "retryable"]
    ).count()


def events(type: str) -> list[Event]:
    return list(Event.objects.filter(type=type).order_by("id"))


@pytest.mark.requirement("BP-001")
@pytest.mark.requirement("BP-002")
def test_a_queue_at_its_bound_rejects_the_next_job_and_says_where_it_stands() -> None:
    bound(10)
    for _ in range(10):
        add()
    with pytest.raises(QueueFull) as caught:
        add()
    full = caught.value
    assert (full.queue, full.depth, full.bound) == (NAME, 10, 10)
    assert full.details["strategy"] == "reject"
    assert full.retry_after >= 1
    assert depth() == 10


@pytest.mark.parametrize("limit", [1, 2, 5, 64, 100, 1_000])
def test_the_bound_is_reached_and_never_passed(limit: int) -> None:
    bound(limit)
    stored = 0
    while True:
        try:
            add()
        except QueueFull:
            break
        stored += 1
    assert stored == depth() == limit


def test_a_batch_fits_as_a_whole_or_not_at_all() -> None:
    bound(10)
    add(8)
    with pytest.raises(QueueFull):
        add(3)
    assert depth() == 8
    add(2)
    assert depth() == 10


def test_the_error_of_what_can_never_fit_says_that_waiting_does_not_help() -> None:
    bound(2)
    with pytest.raises(QueueFull, match="never holds so much at once: its bound is 2") as caught:
        add(3)
    assert "send fewer" in str(caught.value.hint)
    assert not caught.value.retryable
    add(2)
    with pytest.raises(QueueFull) as full:
        add(1)
    assert full.value.retryable


def test_a_batch_in_which_a_unique_key_repeats_needs_room_for_all_its_jobs() -> None:
    bound(2)
    unique = UniquePolicy(keys=("type",), on_conflict="ignore")
    other = EnvelopeFactory.create_batch(2, type="other", queue=NAME)
    # The second job with the key ends the first statement of the batch.
    twice = EnvelopeFactory.create_batch(2, queue=NAME, unique=unique)
    with pytest.raises(QueueFull) as caught:
        pushing.push_batch([*twice, *other])
    assert (caught.value.needs[0], caught.value.retryable) == (3, False)
    assert depth() == 0
    add()
    with pytest.raises(QueueFull) as full:
        pushing.push_batch([*twice, other[0]])
    assert (full.value.needs[0], full.value.retryable) == (2, True)


def test_how_long_to_wait_is_asked_for_the_jobs_of_the_full_queue_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bound(2)
    add(2)
    asked: list[tuple[str, int]] = []
    monkeypatch.setattr(
        retry_after.rates, "retry_after", lambda queue, jobs: asked.append((queue, jobs)) or 7
    )
    batch = [EnvelopeFactory(queue=queue) for queue in ("other", NAME, "other", NAME, "other")]
    with pytest.raises(QueueFull) as caught:
        pushing.push_batch(batch)
    assert asked == [(NAME, 2)]
    assert caught.value.retry_after == 7


def test_room_that_work_makes_is_room() -> None:
    bound(3)
    add(3)
    (claimed, *_) = fetch([NAME])
    add()
    ack(claimed.pk)
    with pytest.raises(QueueFull):
        add()


def test_raising_or_taking_away_the_bound_works_with_the_next_job() -> None:
    bound(1)
    add()
    with pytest.raises(QueueFull):
        add()
    bound(2)
    add()
    bound(0)
    add(5)
    assert depth() == 7
    bound(3)
    with pytest.raises(QueueFull):
        add()


def test_the_default_policy_bounds_queues_that_say_nothing_themselves() -> None:
    queues.configure_default({"backpressure": {"max_depth": 2}})
    bound(0, queue="free")
    add(2, queue="one")
    add(2, queue="two")
    for queue in ("one", "two"):
        with pytest.raises(QueueFull):
            add(queue=queue)
    add(5, queue="free")
    queues.configure_default({"backpressure": None})
    add(queue="one")


def test_bounds_can_be_set_in_the_settings(settings: Any) -> None:
    settings.OJS = {**settings.OJS, "QUEUES": {NAME: {"backpressure": {"max_depth": 2}}}}
    add(2)
    with pytest.raises(QueueFull):
        add()
    bound(3)
    add()
    settings.OJS = {**settings.OJS, "QUEUES": {}}


def test_an_operators_word_goes_over_the_settings_member_by_member_and_they_over_the_default(
    settings: Any,
) -> None:
    in_code = {"backpressure": {"max_depth": 2, "warning_threshold": 0.5}}
    settings.OJS = settings.OJS | {"QUEUES": {NAME: in_code}}
    default = {"max_depth": 1, "max_size_bytes": 9_000, "strategy": "block"}
    queues.configure_default({"backpressure": default})

    def holds() -> tuple[int | None, int | None, str, float]:
        found = queue_configs.config_of(NAME).backpressure
        return (
            found.max_depth, found.max_size_bytes, found.strategy, found.warning_threshold
        )  # fmt: skip

    assert holds() == (2, 9_000, "block", 0.5)
    queues.configure(NAME, {"backpressure": {"strategy": "drop_oldest"}})
    assert holds() == (2, 9_000, "drop_oldest", 0.5)
    for _ in range(4):
        add()
    assert depth() == 2
    queues.configure(NAME, {"backpressure": {"max_depth": 0, "max_size_bytes": 0}})
    assert holds() == (None, None, "block", 0.5)
    add(20)
    assert depth() == 22
    queues.configure(NAME, {"backpressure": None})
    assert holds() == (2, 9_000, "block", 0.5)
    with pytest.raises(QueueFull):
        add()


def test_the_pending_jobs_of_a_batch_need_no_room() -> None:
    bound(2)
    add()
    pushing.push_batch(
        [EnvelopeFactory(queue=NAME, pending=state) for state in (True, False, True)]
    )
    assert depth() == 2


def test_a_retry_by_hand_needs_room() -> None:
    bound(1)
    dead = in_state("discarded", queue=NAME)
    add()
    with pytest.raises(QueueFull):
        retry(dead.pk)
    assert Job.objects.get(pk=dead.pk).state == "discarded"


@pytest.mark.requirement("BP-R001")
def test_a_bound_in_bytes_counts_what_the_jobs_take() -> None:
    bound(None, max_size_bytes=20_000)
    text = "x" * 3_000
    for _ in range(6):
        add(args=[text])
    with pytest.raises(QueueFull) as caught:
        add(args=[text])
    assert caught.value.bound == 20_000
    assert caught.value.depth == bounds.load(NAME).size <= 20_000


@pytest.mark.requirement("BP-R003")
def test_drop_oldest_makes_room_with_the_oldest_available_jobs() -> None:
    bound(3, strategy="drop_oldest")
    first, second, third = (add()[0] for _ in range(3))
    add(2)
    assert first is not None
    assert second is not None
    assert third is not None
    states = {
        job.pk: (job.state, job.discard_reason, job.dead_letter)
        for job in Job.objects.filter(pk__in=[first.id, second.id, third.id])
    }
    assert states[first.id] == states[second.id] == ("discarded", "dropped", False)
    assert states[third.id][0] == "available"
    assert depth() == 3
    dropped = events("backpressure.dropped")
    assert [event.data["job_id"] for event in dropped] == [str(first.id), str(second.id)]


def test_drop_oldest_drops_the_oldest_whatever_its_priority() -> None:
    bound(3, strategy="drop_oldest")
    first, second, _ = (add(priority=priority)[0] for priority in (5, -5, 0))
    for oldest in ([first], [first, second]):
        add()
        dropped = Job.objects.filter(state="discarded").order_by("pk")
        assert [job.pk for job in dropped] == [job.id for job in oldest]


def test_drop_oldest_rejects_where_nothing_is_available() -> None:
    from datetime import timedelta

    bound(2, strategy="drop_oldest")
    add(2, scheduled_at=timedelta(hours=1))
    with pytest.raises(QueueFull):
        add()
    with pytest.raises(QueueFull):
        add(3)
    assert depth() == 2


def test_drop_oldest_drops_no_job_that_the_same_call_reports() -> None:
    bound(1, strategy="drop_oldest")
    unique = UniquePolicy(keys=("args",), on_conflict="ignore")
    a, b = ({"args": [name], "unique": unique} for name in "ab")

    def add_all(*wanted: dict[str, Any]) -> list[EnqueuedJob]:
        return pushing.push_batch([EnvelopeFactory(queue=NAME, **each) for each in wanted])

    with pytest.raises(QueueFull):
        add_all(a, a, b)
    assert depth() == 0
    (waiting_job,) = add(**a)
    with pytest.raises(QueueFull):
        add_all(a, b)
    assert Job.objects.get(pk=waiting_job.id).state == "available"
    assert [job.id for job in add_all(a, a)] == [waiting_job.id] * 2


def test_drop_oldest_drops_no_job_that_the_same_bulk_operation_retried() -> None:
    keys = [in_state("discarded", queue=NAME).pk for _ in range(3)]
    bound(2, strategy="drop_oldest")
    result = bulk_step.BulkStep(bulk_step.RETRY).run(keys)
    assert [*result.failed] == [keys[-1]]
    assert set(Job.objects.filter(dead_letter=True).values_list("pk", flat=True)) == {keys[-1]}
    assert depth() == 2


@pytest.mark.requirement("BP-004")
def test_a_rejection_is_published_even_where_the_caller_rolls_back() -> None:
    bound(1)
    add()
    with pytest.raises(QueueFull), transaction.atomic():
        add()
    rejection_counts.recorder.reset()
    (reported,) = events("backpressure.rejected")
    assert reported.data["depth"] == reported.data["bound"] == 1
    assert reported.data["job_type"] == EnvelopeFactory().type
    assert Queue.objects.get(name=NAME).full_at is not None


@pytest.mark.requirement("BP-004")
@pytest.mark.parametrize("way", ["activate", "retry", "dead letter", "bulk"])
def test_a_stored_job_that_finds_no_room_is_published_like_a_new_one(way: str) -> None:
    bound(1)
    state = "pending" if way == "activate" else "discarded"
    waiting = in_state(state, queue=NAME, type="test.stored")
    add()
    if way == "bulk":
        step = bulk_step.BulkStep(bulk_step.RETRY)
        with transaction.atomic():
            result = step.run([waiting.pk])
        assert "is full" in result.failed[waiting.pk]
    else:
        operation = {"activate": activate, "retry": retry, "dead letter": dead_letters.retry}[way]
        with pytest.raises(QueueFull) as caught:
            operation(waiting.pk)
        assert caught.value.details["retry_after"] >= 1
    rejection_counts.recorder.reset()
    (reported,) = events("backpressure.rejected")
    assert (reported.data["job_type"], reported.data["count"]) == ("test.stored", 1)
    assert (reported.data["depth"], reported.data["bound"]) == (1, 1)


def test_a_dead_letter_that_is_retried_with_larger_arguments_needs_room_for_them() -> None:
    bound(None, max_size_bytes=20_000)
    dead = in_state("discarded", queue=NAME)
    with pytest.raises(QueueFull):
        dead_letters.retry(dead.pk, override={"args": ["é" * 10_000]})
    assert Job.objects.get(pk=dead.pk).state == "discarded"
    dead_letters.retry(dead.pk, override={"args": ["é" * 9_000]})
    assert 18_000 < bounds.load(NAME).size <= 20_000
    assert bounds.load(NAME).size == Job.objects.get(pk=dead.pk).size_bytes
    assert not counts.differences()


def test_crossing_the_threshold_is_published_once_in_each_direction() -> None:
    bound(10, warning_threshold=0.5)
    add(4)
    assert not events("backpressure.warning")
    add()
    add()
    assert len(events("backpressure.warning")) == 1
    pressure_monitor.check_all()
    assert not events("backpressure.cleared")
    for job in fetch([NAME], count=3):
        ack(job.pk)
    pressure_monitor.check_all()
    pressure_monitor.check_all()
    assert len(events("backpressure.cleared")) == 1


@pytest.mark.requirement("BP-R002")
def test_who_waits_for_room_gets_it_within_a_moment() -> None:
    bound(1, strategy="block")
    add()
    done = threading.Event()

    def wait() -> None:
        pushing.push(EnvelopeFactory(queue=NAME), waiting(20))
        done.set()

    with beside(wait):
        assert not done.wait(0.2)
        (job,) = fetch([NAME])
        assert done.wait(BOUND)
    ack(job.pk)


def test_nobody_waits_inside_a_transaction_or_for_what_can_never_fit() -> None:
    bound(1, strategy="block")
    add()
    began = time.monotonic()
    with transaction.atomic(), pytest.raises(QueueFull):
        pushing.push(EnvelopeFactory(queue=NAME), waiting(60))
    with pytest.raises(QueueFull):
        pushing.push_batch([EnvelopeFactory(queue=NAME)] * 2, waiting(60))
    assert time.monotonic() - began < 50


@pytest.mark.parametrize("strategy", ["reject", "drop_oldest"])
@pytest.mark.parametrize("limit", [100, 1_000, 50_000])
def test_thirty_two_producers_end_at_the_bound_and_not_over_it(limit: int, strategy: str) -> None:
    """Singles and batches, alone and in transactions, with rollbacks and workers."""
    if connection.vendor == "sqlite" and limit > 100:
        pytest.skip("one writer: one size says it all")
    bound(limit, strategy=strategy)
    wanted = min(2 * limit, 4_000) if limit < 50_000 else 3_000
    left = threading.Semaphore(wanted)
    over: list[int] = []
    producers = 32 if connection.vendor == "postgresql" else 6
    stop = threading.Event()

    def produce(seed: int) -> None:
        rng = random.Random(seed)
        while left.acquire(blocking=False):
            number = rng.choice([1, 1, 1, 50])
            for _ in range(number - 1):
                left.acquire(blocking=False)
            try:
                kind = rng.random()
                if kind < 0.5:
                    add(number)
                else:
                    with transaction.atomic():
                        add(number)
                        if rng.random() < 0.3:
                            add()
                        time.sleep(rng.random() * 0.02)
                        if kind > 0.8:
                            transaction.set_rollback(True)
            except QueueFull:
                time.sleep(0.001)

    def work() -> None:
        while not stop.is_set():
            for job in fetch([NAME], count=5):
                ack(job.pk)
            time.sleep(0.005)

    def look() -> None:
        while not stop.is_set():
            if (found := counts.depth(NAME)) > limit:
                over.append(found)
            CountKeeper().fold()
            time.sleep(0.01)

    with beside(work, look):
        try:
            at_once([partial(produce, seed) for seed in range(producers)])
        finally:
            stop.set()
    assert not over
    assert depth() == counts.depth(NAME) <= limit
    assert not counts.differences()


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has one writer")
def test_producers_in_open_transactions_are_counted_though_nobody_sees_their_jobs() -> None:
    bound(100)
    all_have_stored = threading.Barrier(20)

    def produce() -> int:
        number = 0
        with transaction.atomic():
            with suppress(QueueFull):
                for _ in range(10):
                    add()
                    number += 1
            all_have_stored.wait(BOUND)
        return number

    assert sum(at_once([produce] * 20)) == depth() <= 100


def test_an_unbounded_queue_has_no_row_and_takes_no_turn() -> None:
    add(3)
    assert not Bound.objects.exists()


def test_a_bound_whose_row_was_lost_is_looked_after_by_maintenance() -> None:
    bound(1)
    add()
    Bound.objects.all().delete()
    assert pressure_monitor.restore_bounds() == 1
    assert pressure_monitor.restore_bounds() == 0
    with pytest.raises(QueueFull):
        add()

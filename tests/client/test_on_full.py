"""What an enqueue does where its queue is full: raise, wait, or keep the job in the outbox."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

import django_ojs as ojs
from django_ojs import handlers
from django_ojs.extensions.outbox import local
from django_ojs.extensions.outbox.models import OutboxEntry
from django_ojs.models import Job, Queue
from django_ojs.operations import queues
from django_ojs.operations.fetch import fetch
from django_ojs.spec.errors import InvalidRequest, QueueFull
from tests.threads import beside
from tests.worker.waiting import BOUND

pytestmark = pytest.mark.django_db(transaction=True)

NAME = "bounded"
GENEROUS = 20


@pytest.fixture(autouse=True)
def full() -> None:
    """Have a queue of two places, both taken."""
    queues.configure(NAME, {"backpressure": {"max_depth": 2}})
    ojs.enqueue_batch([ojs.request("a", queue=NAME)] * 2)


@pytest.fixture
def handler() -> Iterator[Any]:
    @ojs.job("tests.on_full", queue=NAME, on_full="outbox")
    def work(number: int) -> None: ...

    yield work
    handlers.registry.remove("tests.on_full")


def depth() -> int:
    return Job.objects.filter(queue=NAME, state="available").count()


def make_room() -> None:
    assert fetch([NAME])


@pytest.mark.parametrize("on_full", [None, "raise"])
def test_it_raises_with_all_one_needs_to_know(on_full: Any) -> None:
    with transaction.atomic():
        with pytest.raises(ojs.errors.QueueFull) as caught:
            ojs.enqueue("a", queue=NAME, on_full=on_full)
        Queue.objects.create(name="afterwards")
    full = caught.value
    assert (full.queue, full.depth, full.bound) == (NAME, 2, 2)
    assert full.retry_after >= 1
    assert Queue.objects.filter(name="afterwards").exists()


@pytest.mark.parametrize("batch", [False, True])
def test_block_waits_for_room_whatever_the_strategy(batch: bool) -> None:
    def enqueue() -> ojs.EnqueuedJob:
        if batch:
            wanted = [ojs.request("b", queue=NAME)]
            return ojs.enqueue_batch(wanted, on_full="block", block_timeout=GENEROUS)[0]
        longest = timedelta(seconds=GENEROUS)
        return ojs.enqueue("b", queue=NAME, on_full="block", block_timeout=longest)

    with beside(enqueue) as (stored,):
        make_room()
        assert stored.result(BOUND).type == "b"
    assert depth() == 2


def test_block_raises_when_the_time_is_over_and_at_once_in_a_transaction() -> None:
    with pytest.raises(QueueFull):
        ojs.enqueue("a", queue=NAME, on_full="block", block_timeout=0.1)
    began = time.monotonic()
    with transaction.atomic(), pytest.raises(QueueFull):
        ojs.enqueue("a", queue=NAME, on_full="block", block_timeout=300)
    assert time.monotonic() - began < 100


def test_outbox_keeps_the_job_and_it_comes_back_when_there_is_room(handler: Any) -> None:
    kept = handler.enqueue(7)
    assert (kept.state, kept.destination) == ("pending", "local")
    assert not Job.objects.filter(pk=kept.id).exists()
    assert local.deliver() == 0
    make_room()
    _wait_until_stored(kept.id)
    job = ojs.get_job(kept.id)
    assert (job.type, job.args, job.queue, job.state) == ("tests.on_full", [7], NAME, "available")


def test_what_is_kept_rolls_back_with_the_caller(handler: Any) -> None:
    with transaction.atomic():
        assert handler.enqueue(7).outcome == "outbox"
        assert OutboxEntry.objects.count() == 1
        transaction.set_rollback(True)
    assert not OutboxEntry.objects.exists()


def test_a_batch_is_kept_as_a_whole(handler: Any) -> None:
    make_room()
    kept = ojs.enqueue_batch([handler.request(number) for number in range(2)])
    assert [job.state for job in kept] == ["pending", "pending"]
    assert OutboxEntry.objects.count() == 2
    assert depth() == 1
    # With room, nothing is kept.
    assert ojs.enqueue_batch([handler.request(2)])[0].outcome == "stored"


def test_what_is_said_for_one_job_goes_before_what_its_type_says(handler: Any) -> None:
    with pytest.raises(QueueFull):
        handler.options(on_full="raise").enqueue(1)
    with pytest.raises(QueueFull):
        ojs.enqueue_batch([handler.request(1)], on_full="raise")


def test_a_batch_does_one_thing(handler: Any) -> None:
    with pytest.raises(InvalidRequest, match="on_full must be the same"):
        ojs.enqueue_batch([handler.request(1), ojs.request("a", queue=NAME)])


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"on_full": "wait"}, "on_full"),
        ({"on_full": 1}, "on_full"),
        ({"block_timeout": 3}, "block_timeout"),
        ({"on_full": "raise", "block_timeout": 3}, "block_timeout"),
        ({"on_full": "block", "block_timeout": 0}, "block_timeout"),
        ({"on_full": "block", "block_timeout": "1s"}, "block_timeout"),
        ({"on_full": "block", "block_timeout": float("nan")}, "block_timeout"),
    ],
)
def test_a_bad_value_is_rejected_where_it_is_given(options: Any, field: str) -> None:
    for give in (
        lambda: ojs.enqueue("a", **options),
        lambda: ojs.enqueue_batch([ojs.request("a", **options)]),
        lambda: ojs.enqueue_batch([ojs.request("a")], **options),
        lambda: ojs.job("tests.bad_on_full", **options),
    ):
        with pytest.raises(InvalidRequest) as caught:
            give()
        assert caught.value.details["field"] == field


def _wait_until_stored(key: Any) -> None:
    deadline = time.monotonic() + BOUND
    while not Job.objects.filter(pk=key).exists() and time.monotonic() < deadline:
        local.deliver()
        threading.Event().wait(0.05)

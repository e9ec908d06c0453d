"""Signals: each change sends one, after its commit, and no receiver can harm it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.dispatch import Signal

import django_ojs as ojs
from django_ojs import signals
from django_ojs.models import Job
from django_ojs.operations import ack, cancel, expiry, fail, fetch
from django_ojs.spec.states import State
from tests import factories as make

pytestmark = pytest.mark.django_db(transaction=True)

ALL: dict[str, Signal] = {
    name: signal
    for name, signal in vars(signals).items()
    if isinstance(signal, Signal) and name.startswith("job_")
}

Published = list[tuple[str, dict[str, Any]]]


@contextmanager
def listening() -> Iterator[Published]:
    """Collect every signal, as (name, arguments)."""
    published: Published = []

    def receiver(name: str) -> Callable[..., None]:
        return lambda **carried: published.append((name, carried))

    receivers = {name: receiver(name) for name in ALL}
    for name, each in receivers.items():
        ALL[name].connect(each, sender=Job)
    try:
        yield published
    finally:
        for name, each in receivers.items():
            ALL[name].disconnect(each, sender=Job)


def names(published: Published) -> list[str]:
    return [name for name, _ in published]


def nothing() -> None:
    """There is no job before."""


def late() -> Job:
    job = make.push(expires_at=timedelta(hours=1))
    make.age(job.pk, timedelta(hours=2))
    return job


def last_attempt() -> Any:
    return make.active(retry=make.hourly(1))


@dataclass(frozen=True)
class Change:
    """What happens to which job, and the signals it must give."""

    before: Callable[[], Any]
    act: Callable[[Any], object]
    publishes: list[str]


CHANGES = {
    "enqueue": Change(nothing, lambda _: ojs.enqueue("test.signal"), ["job_enqueued"]),
    "enqueue pending": Change(
        nothing, lambda _: ojs.enqueue("test.signal", pending=True), ["job_enqueued"]
    ),
    "enqueue a batch": Change(
        nothing,
        lambda _: ojs.enqueue_batch([ojs.request("test.signal")] * 3),
        ["job_enqueued"] * 3,
    ),
    "start": Change(make.push, lambda job: fetch.fetch([job.queue]), ["job_started"]),
    "complete": Change(make.active, lambda job: ack.ack(job.id, result=1), ["job_completed"]),
    "fail": Change(
        make.active, lambda job: fail.fail(job.id, make.BOOM), ["job_failed", "job_retrying"]
    ),
    "fail for good": Change(
        last_attempt, lambda job: fail.fail(job.id, make.BOOM), ["job_failed", "job_discarded"]
    ),
    "cancel": Change(make.push, lambda job: ojs.cancel(job.pk), ["job_cancelled"]),
    "cancel an active job": Change(make.active, lambda job: ojs.cancel(job.id), ["job_cancelled"]),
    "cancel a cancelled job": Change(
        lambda: make.in_state(State.CANCELLED), lambda job: ojs.cancel(job.pk), []
    ),
    "give back": Change(make.active, lambda job: fail.requeue(job.id), ["job_returned"]),
    "put aside": Change(
        make.active, lambda job: fail.postpone(job.id, make.BOOM, delay=make.HOUR), ["job_returned"]
    ),
    "activate": Change(
        lambda: make.in_state(State.PENDING), lambda job: ojs.activate(job.pk), ["job_activated"]
    ),
    "retry": Change(
        lambda: make.in_state(State.DISCARDED), lambda job: ojs.retry(job.pk), ["job_retried"]
    ),
    "expire": Change(late, lambda _: expiry.expire(), ["job_discarded"]),
}
each_change = pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)

#: The state of the job that a signal carries.
STATES = {
    "job_started": {State.ACTIVE},
    "job_completed": {State.COMPLETED},
    "job_failed": {State.RETRYABLE, State.DISCARDED},
    "job_retrying": {State.RETRYABLE},
    "job_discarded": {State.DISCARDED},
    "job_cancelled": {State.CANCELLED},
    "job_returned": {State.AVAILABLE, State.RETRYABLE},
    "job_activated": {State.AVAILABLE},
    "job_retried": {State.AVAILABLE},
    "job_enqueued": {State.AVAILABLE, State.PENDING},
}


def test_every_signal_is_in_the_table() -> None:
    assert {name for change in CHANGES.values() for name in change.publishes} == set(ALL)
    assert set(STATES) == set(ALL)


@pytest.mark.requirement("L0-EVT-001", "L1-EVT-001", "L1-EVT-002")
@each_change
def test_a_change_is_signalled_once_with_the_job_as_it_is_then(change: Change) -> None:
    job = change.before()
    with listening() as published:
        change.act(job)
    assert names(published) == change.publishes
    for name, carried in published:
        assert carried["sender"] is Job
        assert carried["job"].state in STATES[name]
        assert make.read(carried["job"].pk).state == carried["job"].state
    assert len({(name, carried["job"].pk) for name, carried in published}) == len(published)


@each_change
def test_a_change_is_signalled_after_the_commit_and_not_before(change: Change) -> None:
    job = change.before()
    with listening() as published:
        with transaction.atomic():
            change.act(job)
            assert published == []
        assert names(published) == change.publishes


@each_change
def test_a_change_that_is_rolled_back_sends_no_signal(change: Change) -> None:
    job = change.before()
    with listening() as published:
        with transaction.atomic():
            change.act(job)
            transaction.set_rollback(True)
        with transaction.atomic():
            with transaction.atomic():
                change.act(job)
                transaction.set_rollback(True)
            assert not transaction.get_rollback()
    assert published == []


@each_change
def test_a_receiver_that_fails_is_logged_and_harms_neither_the_job_nor_the_others(
    change: Change, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(**carried: Any) -> None:
        raise RuntimeError("the receiver broke")

    job = change.before()
    for signal in ALL.values():
        signal.connect(broken)
    try:
        with listening() as published:
            change.act(job)
    finally:
        for signal in ALL.values():
            signal.disconnect(broken)
    assert names(published) == change.publishes
    assert all(
        make.read(carried["job"].pk).state == carried["job"].state for _, carried in published
    )
    broke = [record for record in caplog.records if "broken" in record.getMessage()]
    assert len(broke) == len(change.publishes)


@pytest.mark.parametrize("name", ["fail", "fail for good"])
def test_a_failure_is_carried_along(name: str) -> None:
    job = CHANGES[name].before()
    with listening() as published:
        CHANGES[name].act(job)
    assert [carried["failure"] for _, carried in published] == [make.BOOM, make.BOOM]


def test_a_change_that_is_rejected_sends_no_signal() -> None:
    done = make.in_state(State.COMPLETED)
    with listening() as published:
        for act in (ojs.cancel, ojs.activate, ojs.retry, ack.ack, cancel.cancel):
            with pytest.raises(ojs.OJSError):
                act(done.pk)
    assert published == []


def test_a_receiver_may_enqueue_in_its_turn() -> None:
    def follow_up(job: Job, **carried: Any) -> None:
        if job.type == "test.first":
            ojs.enqueue("test.second")

    signals.job_enqueued.connect(follow_up)
    try:
        with transaction.atomic():
            ojs.enqueue("test.first")
    finally:
        signals.job_enqueued.disconnect(follow_up)
    assert set(Job.objects.values_list("type", flat=True)) == {"test.first", "test.second"}

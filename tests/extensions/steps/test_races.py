"""No wake-up is lost, and no step is stored for a run whose job another one has."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import pytest
from django.db import transaction
from django.utils import timezone

import django_ojs
from django_ojs.extensions import steps
from django_ojs.extensions.steps import store
from django_ojs.extensions.steps.models import Step, StepKind, StepSignal, StepStatus
from django_ojs.models import Job
from django_ojs.operations.fetch import fetch
from django_ojs.operations.workers import rescue
from django_ojs.spec.errors import ClaimLost, Conflict, RowLocked
from django_ojs.storage import database
from django_ojs.storage.claimed_job import Claimed
from tests import factories as make
from tests.other_session import Other, open_transaction, until_one_waits
from tests.threads import at_once
from tests.worker.waiting import BOUND

pytestmark = pytest.mark.django_db(transaction=True)

KEY = ("packed", "order-7")
QUEUE = "stepped"


def claimed(worker: str = "worker-a") -> Claimed:
    (job,) = fetch([QUEUE], count=1, worker_id=worker, pool=None)
    return job


def waiting(job: Claimed) -> Step:
    now = timezone.now()
    return Step(
        job_id=job.id,
        number=0,
        name=KEY[0],
        kind=StepKind.WAIT,
        outcome=StepStatus.WAITING,
        signal=KEY[0],
        key=KEY[1],
        until=now + timedelta(days=1),
        run=job.run,
        started_at=now,
    )


def suspends(job: Claimed) -> Callable[[], None]:
    step = waiting(job)
    return lambda: store.suspend(
        job, step, is_new=True, has_come=lambda: store.find_signal(*KEY, []) is not None
    )


def state(key: UUID) -> str:
    return str(Job.objects.get(pk=key).state)


@pytest.mark.repeats
def test_a_signal_that_is_sent_while_a_job_falls_asleep_wakes_it() -> None:
    for _ in range(40):
        make.push(queue=QUEUE)
        job = claimed()
        at_once([suspends(job), lambda: steps.signal(*KEY)])
        assert state(job.id) == "available"
        StepSignal.objects.all().delete()
        Job.primary.filter(pk=job.id).delete()
        Step.primary.filter(job_id=job.id).delete()


@pytest.mark.postgresql
def test_a_job_falls_asleep_after_the_commit_of_a_signal_that_is_being_sent() -> None:
    make.push(queue=QUEUE)
    job = claimed()
    with open_transaction(lambda: steps.signal(*KEY)) as commit, Other() as other:
        suspended = other.do(suspends(job))
        until_one_waits(suspended)
        assert not suspended.done()
        commit()
        suspended.result(BOUND)
    assert state(job.id) == "available"


@pytest.mark.postgresql
def test_a_signal_is_sent_after_the_commit_of_the_job_that_falls_asleep() -> None:
    make.push(queue=QUEUE)
    job = claimed()
    with open_transaction(suspends(job)) as commit, Other() as other:
        sent = other.do(lambda: steps.signal(*KEY))
        until_one_waits(sent)
        assert not sent.done()
        commit()
        sent.result(BOUND)
    assert state(job.id) == "available"


@pytest.mark.postgresql
def test_a_signal_that_is_rolled_back_wakes_nothing() -> None:
    make.push(queue=QUEUE)
    job = claimed()
    with Other() as other:
        with open_transaction(lambda: steps.signal(*KEY)):  # It is rolled back at the end.
            suspended = other.do(suspends(job))
            until_one_waits(suspended)
        suspended.result(BOUND)
    assert state(job.id) == "scheduled"


def of(job: Claimed, number: int = 0) -> Step:
    now = timezone.now()
    return Step(
        job_id=job.id,
        number=number,
        name="charge",
        kind=StepKind.RUN,
        run=job.run,
        started_at=now,
    )


def test_a_stale_run_stores_nothing() -> None:
    make.push(queue=QUEUE)
    stale = claimed()
    rescue.rescue([str(stale.worker_id)])
    claimed("worker-b")
    with pytest.raises(ClaimLost):
        store.insert(stale, of(stale))
    with pytest.raises(ClaimLost):
        suspends(stale)()
    assert not Step.objects.exists()


def test_a_run_of_the_same_worker_is_another_run() -> None:
    make.push(queue=QUEUE)
    stale = claimed()
    rescue.rescue([str(stale.worker_id)])
    now = claimed()
    assert (now.id, now.worker_id) == (stale.id, stale.worker_id)
    with pytest.raises(ClaimLost):
        store.insert(stale, of(stale))
    store.insert(now, of(now))


def test_a_cancelled_job_stores_no_step() -> None:
    make.push(queue=QUEUE)
    job = claimed()
    django_ojs.cancel(job.id)
    with pytest.raises(Conflict):
        store.insert(job, of(job))
    with pytest.raises(Conflict):
        suspends(job)()
    assert state(job.id) == "cancelled"


@pytest.mark.postgresql
def test_a_job_is_not_taken_back_while_a_step_commits() -> None:
    make.push(queue=QUEUE)
    job = claimed()
    with open_transaction(lambda: store.insert(job, of(job))) as commit:
        # The rows of others are passed by.
        assert rescue.rescue([str(job.worker_id)]) == 0
        commit()
    assert Step.objects.filter(job_id=job.id).exists()
    assert rescue.rescue([str(job.worker_id)]) == 1


@pytest.mark.postgresql
def test_a_step_is_not_stored_when_the_job_was_taken_back_meanwhile() -> None:
    make.push(queue=QUEUE)
    job = claimed()
    with open_transaction(lambda: rescue.rescue([str(job.worker_id)])) as commit, Other() as other:
        stored = other.do(lambda: store.insert(job, of(job)))
        until_one_waits(stored)
        commit()
        with pytest.raises(ClaimLost):
            stored.result(BOUND)
    assert not Step.objects.exists()


def test_a_step_whose_answer_was_lost_is_stored_once() -> None:
    make.push(queue=QUEUE)
    job = claimed()
    store.insert(job, of(job))
    store.insert(job, of(job))
    assert Step.objects.filter(job_id=job.id).count() == 1


def test_two_runs_cannot_store_the_same_step() -> None:
    make.push(queue=QUEUE)
    job = claimed()
    store.insert(job, of(job))
    later = of(job)
    later.run += 1
    Step.objects.update(run=later.run)
    with pytest.raises(ClaimLost):
        store.insert(job, of(job))


@pytest.mark.postgresql
def test_a_worker_passes_by_a_signal_that_is_being_sent() -> None:
    make.push(queue=QUEUE)
    job = claimed()

    def pass_by() -> None:
        with database.passing_by():
            suspends(job)()

    with Other() as other:
        with open_transaction(lambda: steps.signal(*KEY)):
            passed = other.do(pass_by)
            until_one_waits(passed)
            assert passed.done()
        with pytest.raises(RowLocked):
            passed.result(BOUND)
    assert state(job.id) == "active"
    pass_by()
    assert state(job.id) == "scheduled"


def test_a_step_commits_with_the_transaction_that_has_it() -> None:
    make.push(queue=QUEUE)
    job = claimed()
    with transaction.atomic():
        store.insert(job, of(job))
        transaction.set_rollback(True)
    assert not Step.objects.exists()

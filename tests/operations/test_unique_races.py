"""Unique jobs, ojs-unique-jobs §8.1: many at once, on connections of their own."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction

from django_ojs.models import Job
from django_ojs.operations import ack, cancel, fail, fetch, retry
from django_ojs.operations import push as pushing
from django_ojs.operations.enqueue.result import EnqueuedJob
from django_ojs.spec.errors import BackendError, Conflict, DuplicateJob
from django_ojs.spec.states import TERMINAL
from django_ojs.spec.unique_policy import UniquePolicy
from tests.factories import (
    BOOM,
    EnvelopeFactory,
    held,
    in_state,
    is_duplicate,
    jobs,
    push_on_road,
    read,
)
from tests.held_key import held_key
from tests.other_session import Other, until_one_waits
from tests.testapp.models import Thing
from tests.threads import at_once
from tests.worker.waiting import BOUND

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("either_road"),
]

MANY = 16

REJECT = UniquePolicy(keys=["args"])
IGNORE = UniquePolicy(keys=["args"], on_conflict="ignore")
REPLACE = UniquePolicy(keys=["args"], on_conflict="replace")


def store(policy: UniquePolicy = REJECT, *args: Any, **values: Any) -> EnqueuedJob:
    return push_on_road(**({"type": "test.race", "args": list(args), "unique": policy} | values))


def outcomes(tasks: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run the tasks at once; return what each returned, or the duplicate that it raised."""

    def run(task: Callable[[], Any]) -> Any:
        try:
            return task()
        except DuplicateJob as error:
            return error

    return at_once([partial(run, task) for task in tasks])


def live() -> list[Job]:
    return list(jobs().exclude(state__in=TERMINAL))


@pytest.mark.parametrize("atomic", [False, True])
def test_of_many_that_push_the_same_key_one_wins(atomic: bool) -> None:
    def task() -> EnqueuedJob:
        if atomic:
            with transaction.atomic():
                return store()
        return store()

    responses = outcomes([task] * MANY)
    (winner,) = [response for response in responses if isinstance(response, EnqueuedJob)]
    losers = [response for response in responses if isinstance(response, DuplicateJob)]
    assert len(losers) == MANY - 1
    assert {error.details["existing_job_id"] for error in losers} == {str(winner.id)}
    assert [job.id for job in jobs()] == [winner.id]


def test_all_who_ignore_get_the_one_job() -> None:
    responses = outcomes([lambda: store(IGNORE)] * MANY)
    assert len({job.id for job in responses}) == jobs().count() == 1
    assert Counter(is_duplicate(job) for job in responses) == {True: MANY - 1, False: 1}


def test_of_many_that_replace_exactly_one_job_is_left() -> None:
    responses = outcomes([lambda: store(REPLACE)] * MANY)
    assert len({job.id for job in responses}) == jobs().count() == MANY
    assert len(live()) == 1
    assert jobs().filter(state="cancelled").count() == MANY - 1


def test_batches_that_share_keys_in_different_orders_neither_meet_nor_block_each_other() -> None:
    def batch(turn: int) -> list[EnqueuedJob]:
        order = list(range(20))
        return pushing.push_batch(
            [
                EnvelopeFactory(type="test.race", args=[n], unique=IGNORE)
                for n in order[turn:] + order[:turn]
            ]
        )

    responses = outcomes([lambda turn=turn: batch(turn) for turn in range(8)])  # type: ignore[misc]  # a default binds it
    assert jobs().count() == 20
    assert sum(not is_duplicate(job) for found in responses for job in found) == 20


def test_a_replacing_producer_and_the_workers_agree_on_each_job() -> None:
    done = threading.Event()
    completed: list[Any] = []

    def work() -> None:
        while not done.is_set():
            for job in fetch.fetch(["race"], worker_id="w", due=False):
                with suppress(Conflict):
                    completed.append(ack.ack(job.id, claim=held(job)).id)

    def produce() -> None:
        try:
            for _ in range(40):
                store(REPLACE, queue="race")
        finally:
            done.set()

    outcomes([work, work, produce])
    ended = Counter(jobs().values_list("state", flat=True))
    assert ended["completed"] == len(completed) == len(set(completed))
    assert ended["completed"] + ended["cancelled"] >= 39
    assert len(live()) <= 1


# --- Inside the callers' transactions ------------------------------------------------------------


@pytest.mark.postgresql
@pytest.mark.parametrize("policy", [REJECT, IGNORE, REPLACE], ids=lambda p: p.on_conflict)
@pytest.mark.parametrize("commits", [True, False])
def test_the_second_waits_for_the_first_to_commit_and_wins_when_it_rolls_back(
    policy: UniquePolicy, commits: bool
) -> None:
    with Other() as other:
        with suppress(KeyError), transaction.atomic():
            first = store(policy)
            second = other.do(lambda: store(policy))
            until_one_waits()
            assert not second.done()
            if not commits:
                raise KeyError
        if commits and policy is REJECT:
            with pytest.raises(DuplicateJob):
                second.result(BOUND)
            assert [job.id for job in live()] == [first.id]
        else:
            response = second.result(BOUND)
            (kept,) = live()
            assert kept.id == response.id
            assert is_duplicate(response) is (commits and policy is IGNORE)
    assert jobs().count() == (2 if commits and policy is REPLACE else 1)


@pytest.mark.postgresql
@pytest.mark.parametrize("policy", [REJECT, IGNORE], ids=lambda p: p.on_conflict)
def test_whoever_stored_nothing_keeps_nobody_waiting(policy: UniquePolicy) -> None:
    store()
    with Other() as other, transaction.atomic():
        with suppress(DuplicateJob):
            assert is_duplicate(store(policy))
        # It would wait until this transaction ends, and so for ever.
        assert is_duplicate(other.do(lambda: store(IGNORE)).result(BOUND))
        Thing.objects.create(name="usable")
    assert Thing.objects.count() == 1


def test_a_lost_race_leaves_the_callers_transaction_usable() -> None:
    def task(name: str) -> None:
        with transaction.atomic():
            with suppress(DuplicateJob):
                store()
            Thing.objects.create(name=name)

    outcomes([lambda name=str(n): task(name) for n in range(6)])  # type: ignore[misc]  # a default binds it
    assert Thing.objects.count() == 6
    assert jobs().count() == 1


@pytest.mark.postgresql
def test_a_lock_that_takes_too_long_leaves_the_callers_transaction_usable() -> None:
    with held_key("test.race"), transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '10ms'")
        with pytest.raises(OperationalError):
            store()
        Thing.objects.create(name="usable")
    assert Thing.objects.count() == 1


# --- Transactions that look at the database as it was ---------------------------------------------


@pytest.fixture(params=["REPEATABLE READ", "SERIALIZABLE"])
def isolation(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def begin(isolation: str) -> None:
    """Take the snapshot of this transaction."""
    with connection.cursor() as cursor:
        cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
        cursor.execute("SELECT 1")


@pytest.mark.postgresql
def test_an_old_snapshot_does_not_hide_what_was_committed_since(isolation: str) -> None:
    with Other() as other, transaction.atomic():
        begin(isolation)
        first = other.do(store).result(BOUND)
        assert not jobs().exists()
        with pytest.raises(DuplicateJob) as caught:
            store()
        assert caught.value.details["existing_job_id"] == str(first.id)
        found = store(IGNORE)
        assert (found.id, is_duplicate(found), found.state) == (first.id, True, "available")
        with pytest.raises(BackendError, match="Run the transaction again"):
            store(REPLACE)
        assert not is_duplicate(store(REJECT, "other"))
        Thing.objects.create(name="usable")
    assert [job.args for job in jobs().order_by("pk")] == [[], ["other"]]
    assert Thing.objects.count() == 1


@pytest.mark.postgresql
@pytest.mark.parametrize("policy", [REJECT, IGNORE, REPLACE], ids=lambda p: p.on_conflict)
def test_a_job_that_has_ended_since_an_old_snapshot_holds_no_key(
    isolation: str, policy: UniquePolicy
) -> None:
    before = store()
    with Other() as other, transaction.atomic():
        begin(isolation)
        other.do(partial(cancel.cancel, before.id)).result(BOUND)
        assert read(before.id).state == "available"
        new = store(policy)
        assert not is_duplicate(new)
        # Of the two, this one is the duplicate.
        assert store(IGNORE).id == new.id
    assert [job.id for job in live()] == [new.id]


@pytest.mark.postgresql
def test_a_job_that_was_retried_since_an_old_snapshot_holds_its_key(isolation: str) -> None:
    before = in_state("discarded", type="test.race", args=[], unique=REJECT)
    with Other() as other, transaction.atomic():
        begin(isolation)
        other.do(partial(retry.retry, before.id)).result(BOUND)
        found = store(IGNORE)
        assert (found.id, is_duplicate(found)) == (before.id, True)
    assert [job.id for job in live()] == [before.id]


@pytest.mark.postgresql
def test_a_job_that_waits_for_its_retry_since_an_old_snapshot_holds_its_key(isolation: str) -> None:
    states = ["available", "scheduled", "retryable"]
    policy = UniquePolicy(keys=["args"], on_conflict="ignore", states=states)
    before = in_state("active", type="test.race", args=[], unique=policy)
    with Other() as other, transaction.atomic():
        begin(isolation)
        other.do(partial(fail.fail, before.id, BOOM)).result(BOUND)
        found = store(policy)
        assert (found.id, is_duplicate(found)) == (before.id, True)
    assert [job.id for job in live()] == [before.id]


@pytest.mark.postgresql
def test_an_old_snapshot_that_waited_for_the_key_sees_who_had_it(isolation: str) -> None:
    def second() -> EnqueuedJob:
        with transaction.atomic():
            begin(isolation)
            return store(IGNORE)

    with Other() as other:
        with transaction.atomic():
            first = store()
            waiting = other.do(second)
            until_one_waits()
        response = waiting.result(BOUND)
    assert (response.id, is_duplicate(response)) == (first.id, True)
    assert jobs().count() == 1


@pytest.mark.postgresql
def test_what_the_transaction_itself_has_done_counts_under_an_old_snapshot(isolation: str) -> None:
    before = store()
    with transaction.atomic():
        begin(isolation)
        cancel.cancel(before.id)
        # To the rest of the world it still lives.
        first = store()
        assert store(IGNORE).id == first.id
        last = store(REPLACE)
    assert [job.id for job in live()] == [last.id]
    assert read(before.id).state == "cancelled"


@pytest.mark.postgresql
def test_many_with_old_snapshots_store_one(isolation: str) -> None:
    def task() -> EnqueuedJob | None:
        with suppress(OperationalError), transaction.atomic():
            begin(isolation)
            return store(IGNORE)
        return None  # SERIALIZABLE may reject at the commit.

    responses = [response for response in outcomes([task] * MANY) if response is not None]
    assert len({response.id for response in responses}) == jobs().count() == 1


@pytest.mark.postgresql
@pytest.mark.parametrize("policy", [REJECT, IGNORE, REPLACE], ids=lambda p: p.on_conflict)
def test_a_connection_whose_every_transaction_is_repeatable_read(policy: UniquePolicy) -> None:
    number = 4 if policy is REPLACE else MANY

    def task() -> EnqueuedJob:
        with connection.cursor() as cursor:
            cursor.execute("SET default_transaction_isolation = 'repeatable read'")
        return store(policy)

    responses = [
        response for response in outcomes([task] * number) if isinstance(response, EnqueuedJob)
    ]
    assert len(responses) == (1 if policy is REJECT else number)
    assert len({job.id for job in responses}) == jobs().count() == (4 if policy is REPLACE else 1)
    assert len(live()) == 1

"""Jobs that several extensions hold: none opens what another one holds, and none stays held."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import permutations
from typing import Any
from uuid import UUID

import pytest
from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from django_ojs.extension import Extension, Hooks
from django_ojs.extensions.limits import claims_by_key, limit_journal
from django_ojs.extensions.limits.extension import KeyLimitsExtension
from django_ojs.extensions.limits.models import HELD, OPEN
from django_ojs.hooks import registry
from django_ojs.models import Job
from django_ojs.operations import ack, cancel, expiry, fail, fetch, queues, retry
from django_ojs.spec.hold import FREE, held_by
from django_ojs.storage import database, holds, queue_configs, remains, schema
from django_ojs.storage.claimed_job import Claimed
from tests.cases import together
from tests.factories import WORKER, checks_are_due, held, jobs, jobs_of_key, push, push_many
from tests.other_session import Other, open_transaction, until_one_waits
from tests.test_extension import installed
from tests.testapp.models import Thing
from tests.threads import at_once
from tests.worker.waiting import BOUND

pytestmark = pytest.mark.django_db(transaction=True)

QUEUE = "held"
ONE = {"key": "acme", "concurrency": 1}


@dataclass
class Keeper(Extension):
    """An extension that holds jobs until it is told otherwise: a row of the project for each."""

    number: int = 40
    name: str = "keeper"

    def __post_init__(self) -> None:
        self.name = f"keeper {self.number}"

    def hooks(self) -> Hooks:
        return Hooks(holds=self.holds)

    def keys(self) -> set[UUID]:
        names = Thing.objects.filter(name__startswith=f"{self.name} ").values_list("name")
        return {UUID(name.rpartition(" ")[2]) for (name,) in names}

    def holds(self, keys: Collection[UUID]) -> dict[UUID, int]:
        return dict.fromkeys(self.keys().intersection(keys), held_by(self.number))

    @database.write_transaction
    def keep(self, *keys: UUID) -> set[UUID]:
        database.dialect().read_committed(database.connection())
        return self.keep_here(*keys)

    def keep_here(self, *keys: UUID) -> set[UUID]:
        Thing.objects.bulk_create([Thing(name=f"{self.name} {key}") for key in keys])
        return holds.hold(self.number, keys)

    @database.write_transaction
    def let_go(self, *keys: UUID) -> None:
        database.dialect().read_committed(database.connection())
        self.let_go_here(*keys)

    def let_go_here(self, *keys: UUID) -> None:
        Thing.objects.filter(name__in=[f"{self.name} {key}" for key in keys]).delete()
        holds.release(self.number, dict.fromkeys(keys, QUEUE))


@pytest.fixture(params=[13, 40], ids=["a lower number", "a higher number"])
def keeper(request: Any) -> Iterator[Keeper]:
    keeper = Keeper(request.param)
    with installed(keeper):
        yield keeper


def claim(count: int = 100) -> list[Claimed]:
    checks_are_due()
    return fetch.fetch([QUEUE], count=count, worker_id=WORKER, due=False)


def hold_of(job: Job) -> int:
    return jobs().get(pk=job.pk).hold


def at_limit() -> tuple[Claimed, Job]:
    """Return a job that runs, and one that its limit holds."""
    push(queue=QUEUE, rate_limit=ONE)
    (running,) = claim()
    job = push(queue=QUEUE, rate_limit=ONE)
    assert claim() == []
    assert hold_of(job) == HELD
    return running, job


# --- one after the other ----------------------------------------------------------------------


def test_what_a_limit_opens_stays_with_the_extension_that_holds_it_too(keeper: Keeper) -> None:
    running, job = at_limit()
    assert keeper.keep(job.pk) == set()
    ack.ack(running.id)
    assert claim() == []
    assert hold_of(job) == held_by(keeper.number)
    keeper.let_go(job.pk)
    assert hold_of(job) == OPEN
    assert [each.id for each in claim()] == [job.pk]


def test_what_an_extension_opens_stays_with_the_limit_that_holds_it_too(keeper: Keeper) -> None:
    running, job = at_limit()
    keeper.keep(job.pk)
    keeper.let_go(job.pk)
    assert hold_of(job) == HELD
    assert claim() == []
    ack.ack(running.id)
    assert [each.id for each in claim()] == [job.pk]


def test_a_limit_decides_on_what_an_extension_has_held_first(keeper: Keeper) -> None:
    push(queue=QUEUE, rate_limit=ONE)
    (running,) = claim()
    job = push(queue=QUEUE, rate_limit=ONE)
    assert keeper.keep(job.pk) == {job.pk}
    assert claim() == []
    assert hold_of(job) == held_by(keeper.number)
    keeper.let_go(job.pk)
    assert claim() == []
    assert hold_of(job) == HELD
    ack.ack(running.id)
    assert [each.id for each in claim()] == [job.pk]


def test_a_plain_job_that_is_held_is_opened_to_all_claims(keeper: Keeper) -> None:
    job, other = push_many(2, queue=QUEUE)
    assert keeper.keep(job.pk) == {job.pk}
    assert [each.id for each in claim()] == [other.pk]
    keeper.let_go(job.pk)
    assert hold_of(job) == FREE
    assert [each.id for each in claim()] == [job.pk]


@together("order", list(permutations((40, 41, 42))), undo=True)
def test_a_job_that_three_hold_starts_after_the_last_of_them(order: tuple[int, ...]) -> None:
    keepers = {number: Keeper(number) for number in order}
    (job,) = push_many(1, queue=QUEUE)
    with installed(*keepers.values()):
        for each in keepers.values():
            each.keep(job.pk)
        for number in sorted(order):
            assert claim() == []
            keepers[number].let_go(job.pk)
        assert [each.id for each in claim()] == [job.pk]


def test_a_running_job_is_held_when_it_waits_again(keeper: Keeper) -> None:
    job = push(queue=QUEUE)
    (running,) = claim()
    assert keeper.keep(job.pk) == {job.pk}
    fail.requeue(job.pk, claim=held(running))
    assert claim() == []
    keeper.let_go(job.pk)
    assert [each.id for each in claim()] == [job.pk]


def test_a_job_that_has_ended_is_not_held(keeper: Keeper) -> None:
    job = push(queue=QUEUE)
    cancel.cancel(job.pk)
    assert keeper.keep(job.pk) == set()
    assert hold_of(job) == FREE


def test_a_limited_job_that_was_inserted_as_held_has_its_key(keeper: Keeper) -> None:
    """A trigger of the other extension was first, and the producer knows no limits."""
    job = push(queue=QUEUE)
    columns = {each.column for each in Job._meta.concrete_fields} - {"id", "options", "hold"}
    chosen = ", ".join(sorted(columns))
    key = Job._meta.pk.get_db_prep_value(UUID(int=job.pk.int ^ 1), connection)
    old = Job._meta.pk.get_db_prep_value(job.pk, connection)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO ojs_job (id, options, hold, {chosen}) "
            f"SELECT %s, %s, %s, {chosen} FROM ojs_job WHERE id = %s",
            [key, '{"rate_limit": {"key": "acme", "concurrency": 1}}', 64 + keeper.number, old],
        )
    (found,) = jobs_of_key("acme")
    assert found.hold == held_by(keeper.number)
    Thing.objects.create(name=f"{keeper.name} {found.pk}")
    keeper.let_go(found.pk)
    assert hold_of(found) == OPEN
    assert len(claim()) == 2


# --- taken out --------------------------------------------------------------------------------


def repair() -> None:
    call_command("ojs", "doctor", "--only", "remains", "--repair")
    queue_configs.refresh()


def test_what_a_removed_extension_held_goes_to_the_limit(keeper: Keeper) -> None:
    push(queue=QUEUE, rate_limit=ONE)
    (running,) = claim()
    plain, limited = push(queue=QUEUE), push(queue=QUEUE, rate_limit=ONE)
    keeper.keep(plain.pk, limited.pk)
    registry.remove(keeper)
    assert claim() == []
    assert remains.held() == {keeper.number: [QUEUE]}
    repair()
    assert (hold_of(plain), hold_of(limited)) == (FREE, OPEN)
    assert [each.id for each in claim()] == [plain.pk]
    ack.ack(running.id)
    assert [each.id for each in claim()] == [limited.pk]


def test_what_removed_limits_held_goes_to_the_extension_that_holds_it_too(keeper: Keeper) -> None:
    _, job = at_limit()
    keeper.keep(job.pk)
    limits = KeyLimitsExtension()
    registry.remove(limits)
    try:
        repair()
        assert hold_of(job) == held_by(keeper.number)
        assert claim() == []
        keeper.let_go(job.pk)
        assert [each.id for each in claim()] == [job.pk]
    finally:
        registry.register(limits)
        schema.create(connection)


# --- at the same time -------------------------------------------------------------------------


@pytest.mark.postgresql
@pytest.mark.parametrize("first", ["the extension", "the limit"])
def test_who_opens_a_job_waits_for_who_begins_to_hold_it(first: str, keeper: Keeper) -> None:
    running, job = at_limit()
    ack.ack(running.id)
    if first == "the extension":
        with open_transaction(lambda: keeper.keep_here(job.pk)) as commit, Other() as other:
            # The rows of held jobs that another transaction has locked are passed by.
            other.do(limit_journal.open_due).result(BOUND)
            assert hold_of(job) == HELD
            commit()
    else:
        with open_transaction(limit_journal._open_due.__wrapped__) as commit, Other() as other:  # type: ignore[attr-defined]
            step = other.do(partial(keeper.keep, job.pk))
            until_one_waits(step)
            assert not step.done()
            commit()
            assert step.result(BOUND) == {job.pk}
    # Due a second later, where the job was locked.
    connection.cursor().execute("UPDATE ojs_limit_check SET due_at = now()")
    limit_journal.open_due()
    assert hold_of(job) == held_by(keeper.number)
    keeper.let_go(job.pk)
    assert [each.id for each in claim()] == [job.pk]


@pytest.mark.postgresql
@pytest.mark.parametrize("number", [40, 41])
def test_two_that_open_a_job_at_the_same_time_leave_it_open(number: int) -> None:
    keepers = [Keeper(40), Keeper(41)]
    with installed(*keepers):
        (job,) = push_many(1, queue=QUEUE)
        for each in keepers:
            each.keep(job.pk)
        one, two = sorted(keepers, key=lambda each: each.number != number)
        with open_transaction(lambda: one.let_go_here(job.pk)) as commit, Other() as other:
            step = other.do(partial(two.let_go, job.pk))
            until_one_waits(step)
            commit()
            step.result(BOUND)
        assert hold_of(job) == FREE


def test_many_hold_and_open_jobs_at_the_same_time() -> None:
    """None runs while it is kept, no key is above its limit, and all of them run in the end."""
    keepers = [Keeper(13), Keeper(40), Keeper(41)]
    wrong: list[Any] = []
    with installed(*keepers):
        for key in "abc":
            push_many(12, queue=QUEUE, rate_limit={"key": key, "concurrency": 1})
        push_many(12, queue=QUEUE)

        def is_over() -> bool:
            return not jobs().exclude(state="completed").exists()

        def check() -> None:
            kept = set().union(*(each.keys() for each in keepers))
            wrong.extend(jobs().filter(pk__in=kept, state="active").values_list("pk", flat=True))
            for key in "abc":
                if jobs_of_key(key).filter(state="active").count() > 1:
                    wrong.append(key)

        def work() -> None:
            while not is_over():
                found = claim(3)
                database.in_write_transaction(check)
                for each in found:
                    ack.ack(each.id)
                limit_journal.open_due()

        def keep(keeper: Keeper) -> Callable[[], None]:
            dice = random.Random(keeper.number)

            def one(key: UUID) -> None:
                # It leaves running jobs alone.
                database.dialect().read_committed(database.connection())
                row = Job.primary.select_for_update(no_key=True).get(pk=key)
                if row.state == "available":
                    keeper.keep_here(key)

            def run() -> None:
                for _ in range(12):
                    waiting = list(jobs().filter(state="available").values_list("pk", flat=True))
                    for key in dice.sample(waiting, min(4, len(waiting))):
                        database.in_write_transaction(partial(one, key))
                    keeper.let_go(*keeper.keys())

            return run

        at_once([work, work, *map(keep, keepers)])
        assert wrong == []
        assert set(jobs().values_list("hold", flat=True)) <= {FREE, OPEN}


def test_a_limit_of_the_queue_holds_beside_the_extension(keeper: Keeper) -> None:
    queues.configure(QUEUE, {"concurrency": 1})
    job, other = push_many(2, queue=QUEUE)
    keeper.keep(job.pk)
    (running,) = claim()
    assert running.id == other.pk
    keeper.let_go(job.pk)
    assert claim() == []
    ack.ack(running.id)
    assert [each.id for each in claim()] == [job.pk]


# --- ended, and retried -----------------------------------------------------------------------


def retried(job: Job) -> Job:
    """Return a job that was discarded while it waited, after a retry by hand."""
    jobs().filter(pk=job.pk).update(expires_at=timezone.now() - timedelta(days=1))
    assert expiry.expire() == 1
    return retry.retry(job.pk)


def test_a_retry_keeps_what_an_extension_has_forgotten_from_nobody(keeper: Keeper) -> None:
    job = push(queue=QUEUE)
    keeper.keep(job.pk)
    Thing.objects.all().delete()
    assert retried(job).hold == FREE
    assert [each.id for each in claim()] == [job.pk]


def test_a_retry_leaves_a_job_with_the_extension_that_holds_it(keeper: Keeper) -> None:
    job = push(queue=QUEUE)
    keeper.keep(job.pk)
    assert retried(job).hold == held_by(keeper.number)
    assert claim() == []
    keeper.let_go(job.pk)
    assert [each.id for each in claim()] == [job.pk]


def test_a_retried_job_of_a_removed_extension_runs(keeper: Keeper) -> None:
    job = push(queue=QUEUE)
    keeper.keep(job.pk)
    registry.remove(keeper)
    repair()
    assert retried(job).hold == FREE
    assert [each.id for each in claim()] == [job.pk]


def test_a_retry_in_a_process_without_the_limits_leaves_a_job_to_them(keeper: Keeper) -> None:
    running, job = at_limit()
    kept = push(queue=QUEUE, rate_limit=ONE)
    keeper.keep(kept.pk)
    limits = KeyLimitsExtension()
    registry.remove(limits)
    try:
        assert retried(job).hold == OPEN
        assert retried(kept).hold == held_by(keeper.number)
    finally:
        registry.register(limits)
    assert claim() == []
    ack.ack(running.id)
    assert [each.id for each in claim()] == [job.pk]


def test_a_retried_job_has_the_limit_that_was_removed_and_is_back() -> None:
    _, job = at_limit()
    jobs().filter(pk=job.pk).update(hold=FREE)  # As `migrate ojs_limits zero` leaves it.
    assert retried(job).hold == OPEN
    assert claim() == []


def test_a_retried_job_that_was_stored_without_the_limits_has_its_limit() -> None:
    policy = {"retry": {"max_attempts": 1}, "rate_limit": ONE}
    job = push(queue=QUEUE)
    jobs().filter(pk=job.pk).update(state="discarded", finished_at=timezone.now(), options=policy)
    claims_by_key.catch_up()
    push(queue=QUEUE, rate_limit=ONE)
    assert len(claim()) == 1
    assert retry.retry(job.pk).hold == OPEN
    assert claim() == []

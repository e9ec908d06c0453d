"""Many at once: each job is claimed once, each race has one winner, and nobody sees a deadlock."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import IntegrityError
from django.test import override_settings

from django_ojs.operations import ack, cancel, expiry, fail, fetch, promotion
from django_ojs.operations import push as pushing
from django_ojs.operations.maintenance import job_pruning, lease
from django_ojs.operations.workers import rescue
from django_ojs.spec.errors import Conflict, JobNotFound
from django_ojs.spec.isolation import ISOLATED_AFTER
from django_ojs.storage.claimed_job import Claimed
from tests.factories import BOOM, HOUR, EnvelopeFactory, age, held, hourly, jobs, push_many
from tests.sizes import FULL
from tests.threads import at_once
from tests.worker.waiting import BOUND

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

JOBS = 5_000 if FULL else 1_000
CLAIMERS = 64
ROUNDS = 200


def claim_all(worker: int, all_have_some: threading.Barrier) -> list[Claimed]:
    """Claim until nothing is left; the workers differ in how much they take."""
    count = 1 + worker % 8
    mine = fetch.fetch(["race"], count=count, worker_id=f"w{worker}", due=False)
    all_have_some.wait(BOUND)
    while found := fetch.fetch(["race"], count=count, worker_id=f"w{worker}", due=False):
        assert len(found) <= count
        mine += found
    return mine


@pytest.mark.requirement("CORE-6.5-2", "FS-001")
@pytest.mark.sized
def test_sixty_four_claimers_claim_each_job_once_and_in_order() -> None:
    pick = random.Random(11)
    for _ in range(5):
        pushing.push_batch(
            [
                EnvelopeFactory(queue="race", priority=pick.choice([-5, 0, 0, 7]))
                for _ in range(JOBS // 5)
            ]
        )
    some = threading.Barrier(CLAIMERS)
    claimed = at_once([partial(claim_all, worker, some) for worker in range(CLAIMERS)])
    everyone = Counter(job.id for mine in claimed for job in mine)
    assert len(everyone) == JOBS
    assert set(everyone.values()) == {1}
    assert not jobs().exclude(state="active", attempt=1, run=1).exists()
    for worker, mine in enumerate(claimed):
        order = [(-job.priority, job.enqueued_at) for job in mine]
        assert order == sorted(order)
        assert {job.worker_id for job in mine} == {f"w{worker}"}


def outcome(task: Callable[[], Any]) -> bool:
    """Say whether an operation won."""
    try:
        return bool(task())
    except Conflict:
        return False
    except IntegrityError:
        # It would have won as well: only a constraint of the table is in its way.
        return True


@pytest.mark.requirement("CORE-6.3-3")
def test_of_cancel_ack_fail_and_lapse_exactly_one_wins() -> None:
    push_many(ROUNDS, queue="race", retry=hourly(1))
    claimed = fetch.fetch(["race"], count=ROUNDS, worker_id="w")
    gate = threading.Barrier(4)

    def contend(act: Callable[[Claimed], Any], prepare: bool = False) -> list[bool]:
        won = []
        for job in claimed:
            if prepare:
                age(job.id, HOUR)
            gate.wait(BOUND)
            won.append(outcome(partial(act, job)))
            gate.wait(BOUND)
        return won

    winners = at_once(
        [
            lambda: contend(lambda job: cancel.cancel(job.id)),
            lambda: contend(lambda job: ack.ack(job.id, claim=held(job))),
            lambda: contend(lambda job: fail.fail(job.id, BOOM, claim=held(job))),
            lambda: contend(lambda job: rescue.lapse(), prepare=True),
        ]
    )
    assert [sum(row) for row in zip(*winners, strict=True)] == [1] * ROUNDS
    ended = Counter(jobs().values_list("state", flat=True))
    cancelled, acked, failed, lapsed = (sum(row) for row in winners)
    expected = {"cancelled": cancelled, "completed": acked, "discarded": failed + lapsed}
    assert ended == {state: number for state, number in expected.items() if number}
    with_trace = jobs().exclude(attempts=None).distinct().count()
    assert with_trace == cancelled + failed + lapsed


def test_two_maintenance_leaders_do_each_thing_once() -> None:
    # The lease lets one lead; should two believe they do, nothing happens twice.
    number = 400
    kinds = [
        ({"scheduled_at": HOUR}, "available"),
        ({"expires_at": HOUR}, "discarded"),
        ({"scheduled_at": 3 * HOUR}, "scheduled"),
    ]
    for values, _ in kinds:
        push_many(number, **values)
    keys = [job.pk for job in push_many(number, queue="lapsing", retry=hourly(2))]
    fetch.fetch(["lapsing"], count=number, worker_id="w", due=False)
    age(jobs().values_list("pk", flat=True), 2 * HOUR)
    done = at_once([lambda: lead(60), lambda: lead(60), lambda: lead(35)])
    assert [sum(row) for row in zip(*done, strict=True)] == [number] * 3
    assert Counter(jobs().filter(pk__in=keys).values_list("state", flat=True)) == {
        "available": number
    }
    assert jobs().filter(state="available").count() == 2 * number
    assert jobs().filter(pk__in=keys, attempts__outcome="lapsed").count() == number


def lead(limit: int) -> tuple[int, int, int]:
    done = [0, 0, 0]
    while step := (promotion.promote(limit), expiry.expire(limit), rescue.lapse(limit)):
        done = [total + new for total, new in zip(done, step, strict=True)]
        if not any(step):
            break
    return done[0], done[1], done[2]


@pytest.mark.parametrize("contested", [False, True], ids=["a new lease", "a lease that ended"])
def test_of_many_that_ask_for_the_lease_one_gets_it(contested: bool) -> None:
    for turn in range(10):
        name = f"turn-{turn}"
        if contested:
            lease.take("dead", name)
            lease.Lease.objects.update(until="2001-01-01T00:00:00Z")
        took = at_once([partial(lease.take, f"holder-{n}", name) for n in range(6)])
        assert sum(took) == 1


def test_bulk_acks_pruning_and_rescue_never_raise_a_deadlock() -> None:
    number, pick = 600, random.Random(5)
    push_many(number, queue="race", retry=hourly(1))
    # They were lost beside others before, so that another loss discards them.
    jobs().update(lost_with_others=ISOLATED_AFTER)
    claimed = fetch.fetch(["race"], count=number, worker_id="w")
    responses = [(job.id, job.run, {"n": n}) for n, job in enumerate(claimed)]
    shuffled = pick.sample(responses, number)

    def response(batches: list[Any], size: int) -> set[Any]:
        done: set[Any] = set()
        for start in range(0, number, size):
            done |= ack.ack_batch("w", batches[start : start + size])
        return done

    def cancel_some() -> int:
        won = 0
        for key, _, _ in pick.sample(shuffled, 60):
            with suppress(JobNotFound):  # It ended, and was pruned.
                won += outcome(partial(cancel.cancel, key))
        return won

    def prune() -> int:
        return sum(job_pruning.prune(limit=20) for _ in range(30))

    def take_back() -> int:
        return sum(rescue.rescue(["w"], limit=15) for _ in range(20))

    with override_settings(OJS=dict.fromkeys(KEEPS, timedelta(microseconds=1))):
        one, two, cancelled, pruned, _, rescued = at_once(
            [
                lambda: response(shuffled, 37),
                lambda: response(list(reversed(shuffled)), 53),
                cancel_some,
                prune,
                prune,
                take_back,
            ]
        )
    assert not one & two
    assert len(one) + len(two) + cancelled + rescued == number
    assert pruned >= 0
    assert not jobs().filter(state__in=["active", "available", "retryable"]).exists()


KEEPS = ("KEEP_COMPLETED", "KEEP_CANCELLED", "KEEP_DISCARDED", "KEEP_DEAD_LETTERS")

"""Claims while an old snapshot is open start where the last one ended, and miss nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection, connections
from django.db.models import F
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_ojs.models import Job
from django_ojs.operations import fetch, queues
from django_ojs.operations.workers import rescue
from django_ojs.spec.isolation import Isolation
from django_ojs.storage import claim_floors, database, transitions
from django_ojs.storage.claim_floors import floors
from django_ojs.storage.claimed_job import Claimed
from django_ojs.storage.dialects.postgresql import PostgreSQL
from django_ojs.storage.dialects.rows import ClaimRequest
from django_ojs.storage.dialects.server import OldestTransaction
from tests.databases import ALIASES
from tests.factories import HOUR, WORKER, WorkerFactory, jobs, push, push_many

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True, databases=ALIASES)]

QUEUE = "a"


@contextmanager
def snapshot() -> Iterator[None]:
    """Hold a snapshot open in another session."""
    holder = connections.create_connection("default")
    try:
        with holder.cursor() as cursor:
            cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            cursor.execute("SELECT count(*) FROM ojs_job")
        yield
    finally:
        holder.close()


@pytest.fixture
def always_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every claim count as slow, and every open transaction as old; floors do not end."""
    monkeypatch.setattr(claim_floors, "SLOW", 0.0)
    monkeypatch.setattr(claim_floors, "OLD", timedelta(0))
    lasting(monkeypatch, 3600.0)


def lasting(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(claim_floors, "LONGEST", seconds)
    monkeypatch.setattr(claim_floors, "RATIO", 1e9)


def claim(limit: int = 1) -> list[Claimed]:
    return transitions.claim(
        ClaimRequest(queue=QUEUE, limit=limit, worker_id=WORKER, lease_ms=60_000)
    )


def ids(claimed: list[Claimed]) -> list[Any]:
    return [job.id for job in claimed]


def test_without_an_old_transaction_no_claim_has_a_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_floors, "SLOW", 0.0)
    push_many(3, queue=QUEUE)
    claim()
    assert floors.of(QUEUE) is None
    # It is open, but not for long.
    with snapshot():
        claim()
        assert floors.of(QUEUE) is None


def test_a_claim_that_is_not_slow_does_not_query_for_transactions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claim_floors, "SLOW", 3600.0)
    monkeypatch.setattr(PostgreSQL, "read", None)
    push_many(3, queue=QUEUE)
    assert len(claim(2)) == 2


def test_a_slow_claim_does_not_query_again_before_a_transaction_can_be_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claim_floors, "SLOW", 0.0)
    ages = iter([timedelta(seconds=2), timedelta(seconds=6), timedelta(seconds=4.9)])
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(claim_floors, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(
        PostgreSQL, "read", lambda *_: [OldestTransaction(next(ages), timezone.now())]
    )
    push_many(9, queue=QUEUE)
    claim()
    # The oldest transaction gets old in three seconds, and any other later.
    clock.now += 2.9
    claim()
    assert floors.of(QUEUE) is None
    clock.now += 0.2
    claim()
    # What was found serves the other queues, too, and is asked again after a second.
    for queue in "bcd":
        floors.note(queue, None, [], 0.5)
        assert floors.of(queue) is not None
    clock.now += claim_floors.ASKED
    floors.note("b", None, [], 0.5)
    assert floors.of("b") is None
    assert next(ages, None) is None
    clock.now += claim_floors.ASKED / 2
    floors.note("b", None, [], 0.5)
    assert floors.of("b") is None


@pytest.mark.usefixtures("always_slow")
def test_a_claim_from_a_floor_reads_no_entries_of_claimed_jobs() -> None:
    for _ in range(4):
        push_many(1000, queue=QUEUE)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE ojs_job")
    with snapshot():
        for _ in range(39):
            claim(100)
        floor = floors.of(QUEUE)
        assert floor is not None
        whole, from_floor = (reads(at) for at in (None, floor))
    # In the whole claim: the pages of all rows that were claimed, though none is available.
    assert whole > 50
    assert from_floor < whole / 4


@pytest.mark.usefixtures("always_slow")
def test_a_worker_claims_from_a_floor_of_a_queue_with_a_limit() -> None:
    queues.configure(QUEUE, {"concurrency": 100})
    WorkerFactory()
    pushed = push_many(4, queue=QUEUE)
    found = []
    with snapshot():
        for _ in pushed:
            found += fetch.fetch([QUEUE], worker_id=WORKER, due=False, registered=True)
            assert floors.of(QUEUE) is not None
    assert ids(found) == [job.pk for job in pushed]


def reads(floor: Any) -> int:
    """Return the buffers that the query of a claim of one job touches."""
    found: list[int] = []

    def explain(execute: Callable[..., Any], sql: str, params: Any, *args: Any) -> Any:
        outer, _, inner = sql.partition("ARRAY(")
        of_queue, _, _ = outer.partition(", claimed AS")
        inner = of_queue + inner.rpartition("))")[0]
        with closing(connections.create_connection("default")) as other, other.cursor() as cursor:
            cursor.execute("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + inner, params)
            (plan,) = cursor.fetchone()
        plan = json.loads(plan) if isinstance(plan, str) else plan
        found.append(plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"])
        return execute(sql, params, *args)

    with connection.execute_wrapper(explain):
        database.dialect().claim(
            database.connection(),
            ClaimRequest(
                queue=QUEUE,
                limit=1,
                worker_id=WORKER,
                lease_ms=60_000,
                isolation=Isolation.SHARED,
            ),
            floor,
        )
    return found[0]


@pytest.mark.usefixtures("always_slow")
def test_a_higher_priority_is_claimed_first_beside_a_floor() -> None:
    low = [push(queue=QUEUE, priority=0).pk for _ in range(3)]
    with snapshot():
        assert ids(claim()) == low[:1]
        high = push(queue=QUEUE, priority=5).pk
        lower = push(queue=QUEUE, priority=-5).pk
        assert ids(claim(2)) == [high, low[1]]
        assert ids(claim(5)) == [low[2], lower]
        # Priorities above a floor that is lower now.
        again = push(queue=QUEUE, priority=0).pk
        assert ids(claim(5)) == [again]


@pytest.mark.usefixtures("always_slow")
def test_an_empty_queue_has_a_floor_too_and_new_jobs_of_any_priority_come_after_it() -> None:
    with snapshot():
        assert claim() == []
        assert floors.of(QUEUE) is not None
        keys = [push(queue=QUEUE, priority=priority).pk for priority in (100, 0, -100)]
        assert ids(claim(5)) == keys


@pytest.mark.usefixtures("always_slow")
def test_a_paused_queue_hands_out_nothing_from_a_floor() -> None:
    keys = [job.pk for job in push_many(3, queue=QUEUE)]
    with snapshot():
        assert ids(claim()) == keys[:1]
        queues.pause(QUEUE)
        assert claim(2) == []
        queues.resume(QUEUE)
        assert ids(claim(2)) == keys[1:]


@pytest.mark.usefixtures("always_slow")
def test_an_expired_job_is_not_handed_out_from_a_floor() -> None:
    push_many(1, queue=QUEUE)
    with snapshot():
        claim()
        expired = push(queue=QUEUE, expires_at=HOUR)
        jobs().filter(pk=expired.pk).update(expires_at=F("expires_at") - 2 * HOUR)
        job = push(queue=QUEUE).pk
        assert ids(claim(2)) == [job]


@pytest.mark.usefixtures("always_slow")
def test_a_job_before_the_floor_is_claimed_when_the_floor_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second, third = (job.pk for job in push_many(3, queue=QUEUE))
    with snapshot():
        (claimed,) = claim()
        assert ids(claim()) == [second]
        rescue.give_back([(first, claimed.run)], worker_id=WORKER)
        assert ids(claim()) == [third]
        assert claim() == []
        now = claim_floors.time.monotonic()
        monkeypatch.setattr(claim_floors.time, "monotonic", lambda: now + 3601)
        assert ids(claim()) == [first]


Step = tuple[str, int]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.sampled_from([-1, 0, 0, 0, 1])),
        st.tuples(st.just("early"), st.sampled_from([-1, 0, 1])),
        st.tuples(st.just("claim"), st.integers(1, 4)),
        st.tuples(st.just("return"), st.just(0)),
        st.tuples(st.just("end"), st.just(0)),
    ),
    max_size=25,
)


@pytest.mark.usefixtures("always_slow")
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=STEPS)
def test_jobs_on_both_sides_of_the_floor_are_each_claimed_once_and_in_order(
    steps: list[Step],
) -> None:
    """`early` jobs become available before the floor, as a late commit does; `end` ends a floor."""
    Job.objects.all().delete()
    floors.reset()
    model: dict[Any, tuple[int, Any, Any]] = {}
    hidden: set[Any] = set()
    held: list[Claimed] = []
    with snapshot():
        for what, number in [*steps, ("end", 0), ("claim", 100)]:
            match what:
                case "push" | "early":
                    job = push(queue=QUEUE, priority=number)
                    key = job.pk
                    if what == "early":
                        earlier = job.enqueued_at - timedelta(hours=1)
                        jobs().filter(pk=key).update(enqueued_at=earlier)
                        hidden.add(key)
                    model[key] = order(key)
                case "return" if held:
                    job = held.pop()
                    rescue.give_back([(job.id, job.run)], worker_id=WORKER)
                    model[job.id] = order(job.id)
                    hidden.add(job.id)
                case "end":
                    floors.reset()
                    hidden.clear()
                case "claim":
                    if floors.of(QUEUE) is None:
                        hidden.clear()
                    claimed = claim(number)
                    best = sorted(model, key=model.__getitem__)
                    # All that the floor cannot hide, in its order; what it hides may be among them.
                    visible = [key for key in best if key not in hidden]
                    found = ids(claimed)
                    assert found == sorted(found, key=model.__getitem__)
                    sure = [key for key in found if key not in hidden]
                    assert sure == visible[: len(sure)]
                    assert len(found) >= min(number, len(visible))
                    for job in claimed:
                        del model[job.id]
                    hidden.difference_update(found)
                    held += claimed
    assert not model, "none is lost"
    assert not jobs().filter(state="available").exists()


def order(key: Any) -> tuple[int, Any, Any]:
    job = Job.objects.get(pk=key)
    return (-job.priority, job.enqueued_at, job.pk)


@pytest.mark.usefixtures("always_slow")
def test_workers_with_floors_of_their_own_claim_each_job_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = {job.pk for job in push_many(200, queue=QUEUE)}
    found: list[Any] = []
    with snapshot():
        for _ in range(50):
            found += ids(claim(7))
            # A second process: what it knows is not what the first one knows.
            known = floors._known
            monkeypatch.setattr(floors, "_known", {})
            found += [job.id for job in fetch.fetch([QUEUE], count=3, due=False)]
            monkeypatch.setattr(floors, "_known", known)
    assert len(found) == len(set(found))
    assert set(found) == keys

"""The order in which a worker claims from its queues (ojs-fair-scheduling §7, §8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from itertools import pairwise

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ojs.models import Job
from django_ojs.operations import ack, fetch, queues
from django_ojs.spec.scheduling import (
    ROUND_ROBIN,
    STRICT,
    WEIGHTED,
    QueueOrder,
    StarvationPrevention,
)
from django_ojs.storage import queue_turns
from django_ojs.storage.claim_floors import floors
from django_ojs.storage.next_starts import next_starts
from django_ojs.storage.queue_turns import Turns
from tests.factories import WORKER, push, push_many

pytestmark = pytest.mark.django_db

COUNTS = [1, 2, 3, 7, 20]


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def weighted(**weights: int) -> Turns:
    return Turns(QueueOrder(strategy=WEIGHTED, weights=tuple(weights.items())))


def claim(turns: Turns, count: int, names: Sequence[str] = "abc") -> list[str]:
    """Claim jobs, and return their queues."""
    jobs = fetch.fetch(list(names), count=count, worker_id=WORKER, turns=turns)
    return [job.queue for job in jobs]


def served(turns: Turns, count: int, most: int, names: Sequence[str] = "abc") -> list[str]:
    """Claim up to `count` jobs at a time, until there are `most`; return their queues."""
    found: list[str] = []
    while len(found) < most:
        found += claim(turns, min(count, most - len(found)), names)
    return found


@pytest.mark.requirement("FS-003")
@pytest.mark.parametrize("count", COUNTS)
def test_round_robin_gives_each_queue_the_same_whatever_its_depth(count: int) -> None:
    push_many(150, queue="a")
    for name in "bc":
        push_many(25, queue=name)
    found = served(Turns(QueueOrder(strategy=ROUND_ROBIN)), count, 75)
    # No three queues differ by more than the claim that is divided leaves over.
    assert max(Counter(found).values()) - min(Counter(found).values()) <= 2
    if count == 1:
        assert found == found[:3] * 25
    # The other two give their turns away when they are empty.
    rest = served(Turns(QueueOrder(strategy=ROUND_ROBIN)), count, 125)
    assert Counter(found + rest) == {"a": 150, "b": 25, "c": 25}


@pytest.mark.requirement("FS-R002")
@pytest.mark.parametrize("count", COUNTS)
def test_queues_are_served_by_their_weights(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # The start where one turn of `c` comes early.
    monkeypatch.setattr(queue_turns.random, "randrange", lambda turns: 5)
    for name in "abc":
        push_many(130, queue=name)
    turns = weighted(a=5, b=3, c=1)
    claims = [claim(turns, count) for _ in range(180 // count)]
    found = [name for each in claims for name in each]
    for name, weight in {"a": 5, "b": 3, "c": 1}.items():
        # Less than the number of queues, by the arithmetic of the turns, from any start.
        assert abs(found.count(name) - len(found) * weight / 9) < 3
    if count == 1:
        assert_rounds_of_nine(found)


def assert_rounds_of_nine(found: list[str]) -> None:
    # Each turn of `c` comes after eight of the others: no queue waits longer than its round. Its
    # second one may come early, since a start gives the turns before it all at once.
    first, second, *others = [n for n, name in enumerate(found) if name == "c"]
    assert first < 9
    assert second - first <= 9
    assert {after - before for before, after in pairwise([second, *others])} == {9}


@pytest.mark.parametrize("start", range(9))
def test_no_queue_waits_longer_than_its_round_from_any_start(
    start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_turns.random, "randrange", lambda turns: start)
    turns, found = weighted(a=5, b=3, c=1), []
    for _ in range(60):
        for ask in turns.asks("abc", 1):
            ask.found = ask.wanted
            found.append(ask.queue)
    assert_rounds_of_nine(found)


def test_a_queue_that_was_empty_gets_no_more_than_its_part_afterwards() -> None:
    push_many(100, queue="a")
    turns = weighted(a=1, b=1)
    assert set(served(turns, 10, 60, "ab")) == {"a"}
    push_many(100, queue="b")
    found = Counter(served(turns, 10, 40, "ab"))
    assert abs(found["b"] - 20) <= 2


@pytest.mark.requirement("FS-R003")
@pytest.mark.parametrize("count", COUNTS)
def test_each_queue_gets_its_least_part_where_the_order_is_strict(count: int) -> None:
    for name in "abc":
        push_many(200, queue=name)
    never = StarvationPrevention(rotation_interval=timedelta(days=1), min_dispatch_ratio=0.1)
    turns = Turns(QueueOrder(strategy=STRICT, prevention=never))
    found = served(turns, count, 200)
    assert found.count("b") == pytest.approx(20, abs=3)
    assert found.count("c") == pytest.approx(20, abs=3)
    assert found.count("a") == 200 - found.count("b") - found.count("c")


@pytest.mark.requirement("FS-R003")
def test_a_queue_that_was_not_asked_for_an_interval_is_next() -> None:
    for name in "ab":
        push_many(50, queue=name)
    clock = Clock()
    prevention = StarvationPrevention(min_dispatch_ratio=0)
    turns = Turns(QueueOrder(strategy=STRICT, prevention=prevention), clock=clock)
    found = ""
    for _ in range(10):
        found += "".join(claim(turns, 2, "ab"))
        clock.now += 10
    # One job of each interval of 30 seconds: with the fourth claim, the seventh and the tenth.
    assert found == "aaaaaabaaaaabaaaaaba"


@pytest.mark.parametrize("strategy", [STRICT, ROUND_ROBIN])
def test_asks_know_whether_each_queue_had_fewer_jobs_than_were_wanted(strategy: str) -> None:
    turns = Turns(QueueOrder(strategy=strategy))
    assert not turns.left_none
    for ask in turns.asks("ab", 4):
        ask.found = 1
    assert turns.left_none
    for ask in turns.asks("ab", 4):
        ask.found = ask.wanted
    assert not turns.left_none
    for ask in turns.asks("ab", 4):
        ask.found = 0
    assert turns.left_none
    with closing(turns.asks("ab", 4)) as asks:
        next(asks)
    assert not turns.left_none, "the caller has stopped before the last queue"


class TestManyQueues:
    """One statement says which queues have jobs, where a claim found several without any."""

    QUEUES = [f"q{number:02}" for number in range(30)]

    def statements(self, count: int = 4) -> tuple[list[str], int]:
        with CaptureQueriesContext(connection) as context:
            found = fetch.fetch(self.QUEUES, count=count, worker_id=WORKER)
        return [job.queue for job in found], len(context)

    @pytest.mark.both
    def test_the_queues_without_a_job_are_not_asked(self) -> None:
        _, most = self.statements()
        assert most < 16
        push_many(2, queue="q17")
        push_many(1, queue="q29")
        found, number = self.statements()
        assert found == ["q17", "q17", "q29"]
        assert number <= most + 6

    @pytest.mark.both
    def test_names_are_split_over_statements(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fetch, "_NAMED_AT_ONCE", 7)
        for queue in ("q05", "q13", "q14", "q29"):
            push_many(1, queue=queue)
        assert self.statements()[0] == ["q05", "q13", "q14", "q29"]

    def test_the_first_queues_need_no_question(self) -> None:
        push_many(9, queue="q02")
        asked: list[int] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fetch, "_without_jobs", lambda queues: asked.append(1))
            assert self.statements()[0] == ["q02"] * 4
        assert asked == []

    def test_all_queues_are_asked_while_claims_start_from_a_floor(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(type(floors), "in_use", True)
        push_many(1, queue="q29")
        found, number = self.statements()
        assert found == ["q29"]
        assert number >= len(self.QUEUES)

    @pytest.mark.both
    def test_a_held_job_that_may_be_opened_is_found(self) -> None:
        push(queue="q29", rate_limit={"key": "k", "concurrency": 1})
        push(queue="q29", rate_limit={"key": "k", "concurrency": 1})
        first, _ = self.statements()
        assert first == ["q29"]
        (job,) = Job.objects.filter(state="active")
        ack.ack(job.pk)
        assert self.statements()[0] == ["q29"]

    def test_a_queue_that_was_not_read_to_its_end_and_is_empty_now_is_forgotten(self) -> None:
        next_starts.unread.add("q20")
        self.statements()
        assert not next_starts.unread


def test_a_least_part_holds_beside_weights() -> None:
    for name in "abc":
        push_many(400, queue=name)
    prevention = StarvationPrevention(min_dispatch_ratio=0.2)
    weights = (("a", 98), ("b", 1), ("c", 1))
    turns = Turns(QueueOrder(strategy=WEIGHTED, weights=weights, prevention=prevention))
    found = Counter(served(turns, 7, 300))
    # Three fifths for all, and of the rest by the weights.
    assert found["b"] == pytest.approx(300 * (0.2 + 0.4 * 0.01), abs=3)


@pytest.mark.requirement("FS-002")
def test_strict_is_strict_without_a_word_of_another_order() -> None:
    for name in "abc":
        push_many(5, queue=name)
    assert "".join(claim(fetch.FIRST_QUEUE_FIRST, 2)) == "aa"
    found = served(fetch.FIRST_QUEUE_FIRST, 4, 13)
    assert found == [*"aaabbbbbccccc"]


def test_a_paused_queue_gives_its_turns_away() -> None:
    for name in "ab":
        push_many(20, queue=name)
    queues.pause("a")
    assert served(weighted(a=9, b=1), 3, 18, "ab") == ["b"] * 18


@pytest.mark.statements
def test_a_claim_is_one_statement_for_each_queue_that_has_a_turn() -> None:
    for name in "abc":
        push_many(100, queue=name)
    turns = weighted(a=2, b=1, c=1)
    claim(turns, 1)

    def statements(count: int) -> int:
        with CaptureQueriesContext(connection) as captured:
            assert len(claim(turns, count)) == count
        return sum("UPDATE" in query["sql"] for query in captured.captured_queries)

    assert statements(1) == 1
    assert statements(8) == 3
    assert statements(100) == 3
    fetch.fetch(["b"], count=100, worker_id=WORKER)
    # An empty queue costs its own, and one more of each that takes its turns.
    assert statements(8) <= 3 + 2
    assert statements(1) <= 2


def test_turns_that_were_not_used_are_given_back() -> None:
    turns = weighted(a=1, b=1)
    for name in "ab":
        push_many(30, queue=name, args=["x" * 1000])
    first = fetch.fetch(["a", "b"], count=10, worker_id=WORKER, turns=turns, max_bytes=1500)
    assert len({job.queue for job in first}) == 1
    # The size of the jobs ended the claim: the other queue had no turn, and is next.
    (other,) = {"a", "b"} - {first[0].queue}
    assert claim(turns, 1, "ab") == [other]
    found = Counter(first[0].queue)
    for _ in range(40):
        found += Counter(
            job.queue
            for job in fetch.fetch(
                ["a", "b"], count=4, worker_id=WORKER, turns=turns, max_bytes=1500
            )
        )
    assert abs(found["a"] - found["b"]) <= 2

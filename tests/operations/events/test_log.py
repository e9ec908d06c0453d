"""The kept events: read in the order of their commits, each once, and pruned by age."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_ojs.extensions.events import commit_order
from django_ojs.extensions.events import storage as stored
from django_ojs.extensions.events.models import Event
from django_ojs.extensions.events.operations import log
from django_ojs.hooks import publish
from django_ojs.operations import queues
from django_ojs.spec.errors import InvalidRequest
from django_ojs.spec.published import EventType, of_queue
from django_ojs.storage import database
from tests.factories import HOUR, WorkerFactory, own_connections, push, until_later
from tests.threads import at_once, beside
from tests.worker.waiting import BOUND

pytestmark = pytest.mark.django_db(transaction=True)

ALL = override_settings(OJS={"KEEP_EVENTS": ["*"]})


def happen(name: str = "q", number: int = 1) -> None:
    """Let something happen to a queue."""
    for _ in range(number):
        publish(EventType.QUEUE_PAUSED, of_queue, name)


def names(page: log.EventPage) -> list[str]:
    return [event["subject"] for event in page.events]


def read_all(**filters: Any) -> list[dict[str, Any]]:
    """Read page by page, as a client does, until there is no more."""
    page = log.read(**filters)
    found = list(page.events)
    while page.has_more:
        page = log.read(**{**filters, "after": page.cursor})
        found += page.events
    return found


def age(by: timedelta) -> None:
    Event.objects.update(time=F("time") - by)


@contextmanager
def elsewhere() -> Any:
    """Run functions in a thread with a connection of its own, one after the other."""
    with ThreadPoolExecutor(1) as pool:

        def run(act: Callable[[], Any]) -> Any:
            return pool.submit(act).result(BOUND)

        try:
            yield run
        finally:
            run(lambda: own_connections().__enter__() or connection.close())


def test_without_events_there_is_nothing_to_read_and_a_cursor_to_go_on_from() -> None:
    page = log.read()
    assert (page.events, page.has_more) == ([], False)
    happen()
    assert names(log.read(after=page.cursor)) == ["q"]


def test_events_come_oldest_first_and_a_cursor_goes_on_where_it_ended() -> None:
    for name in "abcde":
        happen(name)
    first = log.read(limit=2)
    assert (names(first), first.has_more) == (["a", "b"], True)
    second = log.read(after=first.cursor, limit=2)
    assert (names(second), second.has_more) == (["c", "d"], True)
    third = log.read(after=second.cursor, limit=2)
    assert (names(third), third.has_more) == (["e"], False)
    again = log.read(after=third.cursor)
    assert (names(again), again.cursor) == ([], third.cursor)


def test_a_full_last_page_has_no_more() -> None:
    happen(number=3)
    assert not log.read(limit=3).has_more


def test_an_event_id_is_a_cursor_too() -> None:
    for name in "abc":
        happen(name)
    first = log.read(limit=1).events[0]["id"]
    assert names(log.read(after=first)) == ["b", "c"]
    assert names(log.read(after=first.removeprefix("evt_"))) == ["b", "c"]


@pytest.mark.parametrize(
    "after",
    [
        "x",
        "-1",
        "1.5",
        "٣",
        "9" * 30,
        "evt_",
        "evt_\0",
        "evt_01a1fc00-0000-7000-8000-000000000001",
        "f" * 8 + "-ffff-7fff-8fff-" + "f" * 12,
    ],
)
def test_a_cursor_that_was_never_given_is_rejected(after: str) -> None:
    happen()
    with pytest.raises(InvalidRequest) as caught:
        log.read(after=after)
    assert caught.value.details == {"field": "after"}
    assert after not in caught.value.message


def test_filters_take_types_patterns_queues_and_types_of_jobs_all_of_them_together() -> None:
    with ALL:
        push(queue="a", type="one.job")
        push(queue="b", type="two.job")
        queues.pause("a")
        WorkerFactory(id="w")
        assert len(read_all()) == 5
        assert len(read_all(types=["job.*", "worker.started"])) == 3
        assert [e["type"] for e in read_all(queues=["a"])] == ["job.enqueued", "queue.paused"]
        assert [e["data"]["queue"] for e in read_all(job_types=["two.job"])] == ["b"]
        assert read_all(types=["job.*"], queues=["a"], job_types=["two.job"]) == []
        assert read_all(types=["job.exploded"]) == []
        # What concerns no queue is nobody's who is kept to some.
        assert read_all(types=["worker.*"], queues=["a", ""]) == []
        with pytest.raises(InvalidRequest, match="types"):
            log.read(types=["job"])
        with pytest.raises(InvalidRequest, match=r"types must be a list of strings\."):
            log.read(types="job.*")
        with pytest.raises(InvalidRequest, match=r"limit must be at least 1\."):
            log.read(limit=0)


def test_a_filter_passes_over_a_part_at_a_time_and_moves_its_cursor_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log, "LOOKED_AT_ONCE", 3)
    happen("many", 7)
    happen("rare")
    page = log.read(queues=["rare"])
    assert (page.events, page.has_more) == ([], True)
    assert len(read_all(queues=["rare"])) == 1
    assert len(read_all()) == 8


def test_more_than_can_be_placed_at_once_is_read_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    happen("many", 7)
    real = stored.assign_positions
    monkeypatch.setattr(stored, "ASSIGNED_AT_ONCE", 3)
    monkeypatch.setattr(stored, "assign_positions", lambda: real(3))
    assert len(read_all()) == 7


@pytest.mark.requirement("EV-S07")
@pytest.mark.postgresql
def test_what_was_inserted_first_and_commits_last_is_read_last_and_never_passed_over() -> None:
    with elsewhere() as other:
        late = transaction.atomic()
        other(late.__enter__)
        other(lambda: happen("late"))
        happen("early")
        first = log.read()
        assert names(first) == ["early"]
        happen("later")
        second = log.read(after=first.cursor)
        assert names(second) == ["later"]
        other(lambda: late.__exit__(None, None, None))
        third = log.read(after=second.cursor)
        assert names(third) == ["late"]
        assert names(log.read()) == ["early", "later", "late"]
        order = list(Event.objects.order_by("pk").values_list("subject", flat=True))
        assert order == ["late", "early", "later"]


@pytest.mark.postgresql
def test_a_process_that_holds_the_lock_of_positions_stops_no_reader() -> None:
    happen("a")
    stored.assign_positions()
    happen("b")
    with elsewhere() as other:
        holding = transaction.atomic()
        other(holding.__enter__)
        other(lambda: database.dialect().lock_subject(database.connection(), "ojs_event"))
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '5s'")
        try:
            assert names(log.read()) == ["a"]
        finally:
            with connection.cursor() as cursor:
                cursor.execute("RESET lock_timeout")
        other(lambda: holding.__exit__(None, None, None))
    assert names(log.read()) == ["a", "b"]


@pytest.mark.postgresql
@pytest.mark.parametrize("default", ["read committed", "repeatable read"])
def test_the_next_one_who_assigns_sees_what_was_assigned_while_it_waited(
    default: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    happen("a")
    happen("b")
    monkeypatch.setattr(commit_order, "LOCK_TIMEOUT", BOUND)
    with elsewhere() as other, ThreadPoolExecutor(1) as pool:
        placing = transaction.atomic()
        other(placing.__enter__)
        with monkeypatch.context() as patch:
            patch.setattr(database, "is_in_transaction", lambda _: False)
            assert other(lambda: stored.assign_positions(1)) == 1
        waits = threading.Event()
        clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: waits.set())
        monkeypatch.setattr(commit_order, "time", clock)
        waiting = pool.submit(_assign_in_own_connection, default)
        assert waits.wait(BOUND)
        other(lambda: placing.__exit__(None, None, None))
        assert waiting.result(BOUND) == 1
    assert list(Event.objects.order_by("position").values_list("subject", flat=True)) == ["a", "b"]


def _assign_in_own_connection(default: str) -> int:
    with own_connections():
        with connection.cursor() as cursor:
            cursor.execute(f"SET default_transaction_isolation = '{default}'")
        return stored.assign_positions()


def test_a_transaction_that_reads_events_assigns_no_positions() -> None:
    happen("a")
    stored.assign_positions()
    happen("b")
    with transaction.atomic():
        page = log.read()
        assert names(page) == ["a"]
        with elsewhere() as other:
            if connection.vendor == "postgresql":
                assert other(stored.assign_positions) == 1
    assert names(log.read(after=page.cursor)) == ["b"]


def test_a_reader_under_eight_writers_sees_every_event_once() -> None:
    writers, each = 8, 30
    done = threading.Event()
    seen: list[str] = []

    def write(number: int) -> None:
        for turn in range(each):
            with transaction.atomic():
                happen(f"{number}-{turn}")
                if turn % 3 == 0 and connection.vendor == "postgresql":
                    # Some commit long after others that came later.
                    with connection.cursor() as cursor:
                        cursor.execute("SELECT pg_sleep(0.005)")
                happen(f"{number}-{turn}-b")

    def read() -> None:
        cursor = None
        while True:
            ended = done.is_set()
            page = log.read(after=cursor, limit=7)
            seen.extend(names(page))
            cursor = page.cursor
            if ended and not page.has_more:
                return

    with beside(read):
        try:
            at_once([partial(write, number) for number in range(writers)])
        finally:
            done.set()
    assert len(seen) == len(set(seen)) == writers * each * 2
    for number in range(writers):
        mine = [name for name in seen if name.split("-")[0] == str(number)]
        assert mine == [f"{number}-{turn}{end}" for turn in range(each) for end in ("", "-b")]


def test_maintenance_places_what_nobody_reads_and_costs_a_look_when_there_is_nothing() -> None:
    happen(number=3)
    assert stored.assign_positions() == 3
    assert not Event.objects.filter(position=None).exists()
    with CaptureQueriesContext(connection) as queries:
        assert stored.assign_positions() == 0
    assert len(queries) == 1


def test_a_session_that_may_only_read_reads_what_is_placed() -> None:
    happen("a")
    stored.assign_positions()
    happen("b")
    say, off = {
        "postgresql": (
            "SET default_transaction_read_only = on",
            "RESET default_transaction_read_only",
        ),
        "sqlite": ("PRAGMA query_only = on", "PRAGMA query_only = off"),
        "mysql": ("SET SESSION TRANSACTION READ ONLY", "SET SESSION TRANSACTION READ WRITE"),
    }[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(say)
        try:
            assert names(log.read()) == ["a"]
        finally:
            cursor.execute(off)
    assert names(log.read()) == ["a", "b"]


@pytest.mark.requirement("EV-S08")
def test_old_events_are_pruned_oldest_first_and_young_ones_stay() -> None:
    for name in "abc":
        happen(name)
    stored.assign_positions()
    age(timedelta(days=31))
    happen("d")
    stored.assign_positions()
    assert log.prune(limit=2) == 2
    assert names(log.read()) == ["c", "d"]
    assert (log.prune(limit=2), log.prune(limit=2)) == (1, 0)
    happen("e")
    stored.assign_positions()
    with override_settings(OJS={"KEEP_EVENTS_FOR": "PT1H"}):
        assert log.prune() == 0
        age(2 * HOUR)
        assert log.prune() == 1


def test_the_newest_event_stays_so_that_positions_never_start_again() -> None:
    happen(number=3)
    cursor = log.read().cursor
    age(timedelta(days=400))
    log.prune()
    assert Event.objects.count() == 1
    happen("new")
    assert names(log.read(after=cursor)) == ["new"]
    assert log.prune() == 1


def test_what_has_no_position_yet_is_not_pruned() -> None:
    happen(number=2)
    age(timedelta(days=400))
    assert log.prune() == 0
    assert len(read_all()) == 2


def lose_tail(after: str) -> int:
    """Let the database be a replica that had not got what came after a cursor. Return how much."""
    return int(Event.objects.filter(position__gt=int(after)).delete()[0])


@pytest.mark.parametrize("later", [1, 3, 7])
def test_a_reader_misses_nothing_new_of_a_database_that_has_lost_its_tail(later: int) -> None:
    happen("before", 2)
    survived = log.read().cursor
    happen("lost", 3)
    cursor = log.read().cursor
    assert lose_tail(survived) == 3
    until_later()
    happen("new", later)
    assert names(log.read(after=cursor)) == ["new"] * later


def test_a_reader_that_is_beyond_the_log_is_told_and_goes_on_where_the_log_is() -> None:
    happen("before", 2)
    survived = log.read().cursor
    assert not log.read(after=survived).tail_lost
    happen("lost")
    cursor = log.read().cursor
    lose_tail(survived)
    page = log.read(after=cursor)
    assert (page.tail_lost, page.events, page.cursor, page.has_more) == (True, [], survived, False)
    happen("new")
    assert names(log.read(after=page.cursor)) == ["new"]


def test_a_clock_that_was_set_back_gives_no_position_twice() -> None:
    happen("a")
    stored.assign_positions()
    ahead = Event.objects.get().position + int(HOUR.total_seconds() * 1_000_000)
    Event.objects.update(position=ahead)
    happen("b")
    assert names(log.read(after=str(ahead))) == ["b"]

"""Every list in its order: all rows in pages, on to the end and back; and a wrong cursor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from django_ojs.extensions.cron import operations as cron
from django_ojs.extensions.events.models import Event
from django_ojs.extensions.limits import limit_keys
from django_ojs.extensions.limits.limit_key_use import KeyStatus
from django_ojs.extensions.webhooks.operations import deliveries, subscriptions
from django_ojs.extensions.workflows import operations as workflows
from django_ojs.models import BulkOperation
from django_ojs.operations import keyset, queues
from django_ojs.operations.jobs import dead_letters, listing
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.operations.keyset import Order, Page, PageRequest
from django_ojs.spec import ids
from django_ojs.spec.errors import InvalidRequest
from django_ojs.spec.states import State
from tests import listed
from tests.cases import together
from tests.factories import MINUTE, age, in_state
from tests.listed import ROWS
from tests.model_factories import BulkOperationFactory, EventFactory, WorkflowFactory

pytestmark = pytest.mark.django_db


def _jobs(state: State) -> Callable[[], None]:
    def fill() -> None:
        for number in range(ROWS):
            priority = number % 3 if state is State.AVAILABLE else 0
            # Some have the same time, and are told apart by their ids.
            age(in_state(state, queue="q", priority=priority).pk, number % 3 * MINUTE)

    return fill


def _workflows() -> None:
    WorkflowFactory.create_batch(ROWS, queues=["q"])


def _limit_keys() -> None:
    for number in range(ROWS):
        limit_keys.override(f"key-{number}", {"concurrency": 1})


def _events() -> None:
    # Every second event is of another type.
    for _ in range(ROWS):
        EventFactory()
        EventFactory(type="queue.resumed")


def _list_jobs(**values: Any) -> Callable[[PageRequest], Page[Any]]:
    scan_limit = values.pop("scan_limit", listing.SCAN_LIMIT)
    return lambda wanted: listing.list_jobs(JobFilter(**values), wanted, scan_limit=scan_limit)


def _names(read: Callable[[PageRequest], Page[KeyStatus]]) -> Callable[[PageRequest], Page[str]]:
    def names(wanted: PageRequest) -> Page[str]:
        page = read(wanted)
        return page.showing([each.key for each in page.rows])

    return names


def _paused(wanted: PageRequest, **scan: Any) -> Page[Event]:
    found = Event.primary.filter(type="queue.paused")
    return keyset.page(found, {"-pk": int}, wanted, **scan)


@dataclass(frozen=True, slots=True)
class List:
    """A list: what fills it, and what reads a page of it."""

    fill: Callable[[], None]
    read: Callable[[PageRequest], Page[Any]]
    order: Order
    #: Its pages end where a scan does, and may have fewer rows.
    is_scanned: bool = False


UUIDS: Order = {"-pk": UUID}
TIMES: Order = {"-finished_at": datetime, "-pk": UUID}
PRIORITIES: Order = {"-priority": int, "enqueued_at": datetime, "pk": UUID}
LISTS = {
    "jobs": List(_jobs(State.COMPLETED), _list_jobs(), UUIDS),
    "completed jobs": List(_jobs(State.COMPLETED), _list_jobs(states=(State.COMPLETED,)), TIMES),
    "available jobs": List(
        _jobs(State.AVAILABLE), _list_jobs(states=(State.AVAILABLE,), queue="q"), PRIORITIES
    ),
    "scheduled jobs": List(
        _jobs(State.SCHEDULED),
        _list_jobs(states=(State.SCHEDULED,)),
        {"due_at": datetime, "pk": UUID},
    ),
    "jobs of a type": List(_jobs(State.COMPLETED), _list_jobs(type="test.job"), UUIDS),
    "dead letters": List(
        _jobs(State.DISCARDED), lambda wanted: dead_letters.page(JobFilter(), wanted), TIMES
    ),
    "queues": List(listed.queues, queues.listing, {"name": str}),
    "cron jobs": List(listed.cron_jobs, cron.page, {"name": str}),
    "workflows": List(_workflows, workflows.page, UUIDS),
    "workflows of some queues": List(
        _workflows, lambda wanted: workflows.page(wanted, within=["q", "other"]), UUIDS
    ),
    "deliveries": List(listed.deliveries, deliveries.page, UUIDS),
    "webhooks": List(
        listed.webhooks,
        lambda wanted: keyset.page_of_all(subscriptions.all_webhooks(), {"pk": UUID}, wanted),
        UUIDS,
    ),
    "limit keys": List(_limit_keys, _names(limit_keys.listing), {"pk": str}),
    "limit keys that hold jobs": List(_limit_keys, _names(limit_keys.restricted), {"pk": str}),
    "events of a type": List(_events, _paused, {"-pk": int}),
    "events of a type, by scans": List(
        _events,
        lambda wanted: _paused(wanted, among=Event.primary.all(), scan_limit=3),
        {"-pk": int},
        is_scanned=True,
    ),
    "bulk operations": List(
        listed.bulk_operations,
        lambda wanted: keyset.page(BulkOperation.primary.all(), {"-pk": int}, wanted),
        {"-pk": int},
    ),
}
#: The statement for the names of queues has no way back.
BOTH_WAYS = [name for name in LISTS if name != "queues"]


def _rows(pages: list[Page[Any]]) -> list[Any]:
    return [row for page in pages for row in page.rows]


def _on(which: List) -> list[Page[Any]]:
    pages = [which.read(PageRequest(limit=2))]
    while pages[-1].after is not None:
        assert len(pages) <= 2 * ROWS, "it does not end"
        pages.append(which.read(PageRequest(limit=2, cursor=pages[-1].after)))
    return pages


def _whole(which: List) -> list[Any]:
    found = which.read(PageRequest(limit=50))
    return found.rows if not which.is_scanned else _rows(_on(which))


@pytest.mark.parametrize("name", LISTS)
def test_the_pages_of_a_list_have_each_row_once_in_its_order(name: str) -> None:
    which = LISTS[name]
    which.fill()
    whole, pages = _whole(which), _on(which)
    assert len(whole) == ROWS
    assert _rows(pages) == whole
    assert {page.count() for page in pages} == {(ROWS, False)}
    if not which.is_scanned:
        assert [len(page.rows) for page in pages] == [2, 2, 1]
        assert which.read(PageRequest(limit=2, offset=3)).rows == whole[3:5]
        assert which.read(PageRequest(limit=2, offset=1, cursor=pages[0].after)).rows == whole[3:5]


@pytest.mark.parametrize("name", BOTH_WAYS)
def test_the_way_back_has_the_pages_of_the_way_on(name: str) -> None:
    which = LISTS[name]
    which.fill()
    pages = _on(which)
    back = [pages[-1]]
    while back[0].before is not None:
        assert len(back) <= 2 * ROWS, "it does not end"
        back.insert(0, which.read(PageRequest(limit=2, cursor=back[0].before, backwards=True)))
    assert _rows(back) == _rows(pages)
    # From a page on the way back it goes on to the one that was left.
    again = which.read(PageRequest(limit=2, cursor=back[0].after))
    assert again.rows[:1] == _rows(back)[len(back[0].rows) :][:1]


def test_a_scan_shows_the_row_at_which_it_ends_and_says_how_many_it_has_read() -> None:
    for end in ("paused", "resumed", "resumed", "paused", "resumed", "resumed"):
        EventFactory(type=f"queue.{end}")
    scan = {"among": Event.primary.all(), "scan_limit": 3}
    pages = [_paused(PageRequest(limit=2), **scan)]
    while pages[-1].after is not None:
        pages.append(_paused(PageRequest(limit=2, cursor=pages[-1].after), **scan))
    assert [len(page.rows) for page in pages] == [1, 1, 0]
    assert [page.scanned for page in pages] == [3, 3, None]


def test_a_cursor_stays_where_it_is_when_rows_come_and_go() -> None:
    listed.bulk_operations()
    which = LISTS["bulk operations"]
    whole, first = _whole(which), which.read(PageRequest(limit=2))
    for row in first.rows:
        row.delete()
    BulkOperationFactory()
    assert which.read(PageRequest(limit=50, cursor=first.after)).rows == whole[2:]


ORDERS: dict[str, tuple[Order, tuple[Any, ...]]] = {
    "a key": (UUIDS, (ids.uuid7(),)),
    "a time": (TIMES, (datetime(2026, 1, 31, 9, 30, 0, 123456, tzinfo=UTC), ids.uuid7())),
    "a priority": (PRIORITIES, (-7, datetime(9999, 12, 30, tzinfo=UTC), ids.uuid7())),
    "a number": ({"-pk": int}, (2**53 - 1,)),
    "a name": ({"name": str}, ("ä/?+= 5",)),
}


@together("name", list(ORDERS))
def test_a_cursor_has_what_was_put_in_and_is_of_its_order_alone(name: str) -> None:
    order, cursor = ORDERS[name]
    text = keyset.write(cursor)
    assert keyset.read(text, order) == cursor
    assert all(letter.isalnum() or letter in "-_" for letter in text)
    for foreign, _ in ORDERS.values():
        if foreign != order and not (len(order) == 1 and "name" in foreign):
            with pytest.raises(InvalidRequest, match="next_cursor of this list"):
                keyset.read(text, foreign)


WRONG = [
    *("", "x", "~", "!", "\x00", "ä", "9" * 5000, "bnVsbA", "W10", "e30"),
    *(
        keyset.write(each)
        for each in ((True,), (None,), (1.5,), (2**63,), ("\x1b",), ("x" * 2000,))
    ),
    *(keyset.write(each) for each in ((10**30, "x"), (True, str(ids.uuid7())), ([], {}))),
]


@together("text", WRONG)
def test_what_is_no_cursor_is_rejected(text: str) -> None:
    for order, _ in ORDERS.values():
        with pytest.raises(InvalidRequest, match="cursor must be"):
            keyset.read(text, order)


@pytest.mark.parametrize("name", LISTS)
def test_each_list_rejects_a_cursor_of_another_list(name: str) -> None:
    which = LISTS[name]
    foreign = [
        keyset.write(cursor) for order, cursor in ORDERS.values() if not _alike(order, which)
    ]
    for cursor in (*foreign, "x", ""):
        with pytest.raises(InvalidRequest):
            which.read(PageRequest(cursor=cursor))


def _alike(order: Order, which: List) -> bool:
    return list(order.values()) == list(which.order.values()) or str in which.order.values()


def test_all_rows_are_read_page_by_page() -> None:
    listed.cron_jobs()
    asked: list[PageRequest] = []

    def read(wanted: PageRequest) -> Page[Any]:
        asked.append(wanted)
        return cron.page(wanted)

    rows = keyset.all_rows(read, 3)
    next(rows)
    assert len(asked) == 1
    assert len([*rows]) == ROWS - 1
    assert asked == [replace(asked[0], cursor=each.cursor) for each in asked]
    assert len(asked) == 2

"""A query that exceeds its timeout leaves a dash, and the page shows the rest."""

from __future__ import annotations

import time

import pytest
from django.db import transaction

from django_ojs.admin import navigation, query_timeout
from django_ojs.admin.query_timeout import timed_queries
from django_ojs.extensions.statistics import admin_panels, queue_flows, type_runs
from django_ojs.operations import keyset
from django_ojs.operations.maintenance import mode
from django_ojs.operations.workers import rescue
from django_ojs.reports import ended_workers, health_queries, queue_overview
from django_ojs.storage import database
from django_ojs.storage.figures import known_queues
from tests.admin.test_pages import fill
from tests.admin.users import at, root
from tests.databases import KIND
from tests.factories import WorkerFactory

pytestmark = pytest.mark.django_db

#: An hour of sleep, or hours of counting where nothing sleeps, unless it is cancelled. MariaDB ends
#: a recursion after a thousand rows.
ENDLESS = {"postgresql": "SELECT pg_sleep(3600)"}.get(
    KIND,
    """
    WITH RECURSIVE more (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM more WHERE n < 900)
    SELECT count(*) FROM more AS a, more AS b, more AS c, more AS d WHERE a.n + b.n <> c.n + d.n
    """,
)


@pytest.fixture(autouse=True)
def _the_navigation_does_not_wait_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(navigation, "_QUERY_SECONDS", 0.2)


def endless(*_args: object, **_: object) -> object:
    with database.connection().cursor() as cursor:
        cursor.execute(ENDLESS)
        return cursor.fetchone()


def one() -> int:
    with database.connection().cursor() as cursor:
        cursor.execute("SELECT 1")
        return int(cursor.fetchone()[0])


@pytest.mark.both
def test_a_query_that_times_out_returns_none_and_the_next_one_runs() -> None:
    began = time.monotonic()
    with timed_queries(0.2) as query:
        assert query("everything", endless) is None
        assert query("one", one) == 1
        assert query.unread.timed_out == ["everything"]
    assert time.monotonic() - began < 20
    assert one() == 1


def test_a_page_whose_time_is_up_runs_no_more_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_timeout, "PAGE_SECONDS", -1.0)
    with timed_queries() as query:
        assert query("one", one) is None


@pytest.mark.parametrize(
    ("page", "dashes"),
    [
        (
            "overview/",
            (
                *("Completed, last hour</dt><dd>—<", "Failed runs, last hour</dt><dd>—<"),
                *('wide-only">—<', 'empty">— The database took too long'),
            ),
        ),
        ("queue/", ('"In/min">—<', '"Out/min">—<', 'wide-only">—<')),
        (
            "queue/queue-0/change/",
            ("In / out per minute</dt><dd>—<", 'empty">— The database took too long'),
        ),
    ],
)
def test_no_figure_that_is_unknown_is_shown_as_zero(
    page: str, dashes: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(1)
    monkeypatch.setattr(queue_flows, "flows", endless)
    monkeypatch.setattr(admin_panels, "history", endless)
    monkeypatch.setattr(query_timeout.timed_queries.__wrapped__, "__defaults__", (0.2,))
    shown = root().get(at(page)).content.decode()
    for dash in dashes:
        assert dash in shown
    for nothing in ("No job was enqueued or run", "No job was completed"):
        assert nothing not in shown


@pytest.mark.both
def test_queues_that_are_unknown_are_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    fill(1)
    monkeypatch.setattr(queue_overview, "overview", endless)
    monkeypatch.setattr(query_timeout.timed_queries.__wrapped__, "__defaults__", (0.2,))
    client = root()
    for page in ("overview/", "queue/?q=queue"):
        shown = client.get(at(page)).content.decode()
        assert "There is no queue yet" not in shown
        assert "No queue's name contains" not in shown


def test_bulk_operations_that_are_unknown_are_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyset, "page", endless)
    monkeypatch.setattr(query_timeout.timed_queries.__wrapped__, "__defaults__", (0.2,))
    shown = root().get(at("bulkoperation/")).content.decode()
    assert "took too long: bulk operations" in shown
    assert "There is no bulk operation yet" not in shown


@pytest.mark.parametrize("unknown", ["get", "lost_jobs"])
def test_a_worker_whose_end_is_unknown_is_not_missing(
    unknown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    WorkerFactory(id="w-1")
    rescue.rescue(["w-1"])
    client = root()
    assert "Unknown" not in client.get(at("worker/w-1/change/")).content.decode()
    monkeypatch.setattr(ended_workers, unknown, endless)
    monkeypatch.setattr(query_timeout.timed_queries.__wrapped__, "__defaults__", (0.2,))
    response = client.get(at("worker/w-1/change/"))
    assert response.status_code == 200
    assert "took too long: " in response.content.decode()


@pytest.mark.postgresql
@pytest.mark.parametrize(
    "page",
    [
        *("overview/", "queue/queue-0/change/", "queue/action/drain/?key=queue-0", "job/"),
        *("apikey/add/", "queue/queue-0/history/"),
    ],
)
def test_a_page_does_not_wait_for_the_maintenance_mode(
    page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(1)
    # It reads the mode only where there is one.
    monkeypatch.setattr(health_queries, "signs", lambda **_: health_queries.Signs())
    monkeypatch.setattr(mode, "status", endless)
    monkeypatch.setattr(query_timeout.timed_queries.__wrapped__, "__defaults__", (0.2,))
    client = root()
    with database.connection().cursor() as cursor:  # A query without a timeout fails the page.
        cursor.execute("SET LOCAL statement_timeout = '20s'")
    response = client.get(at(page))
    assert response.status_code == 200
    if "history" not in page and "apikey" not in page:
        # Read once, also where another part of the page shows it.
        assert response.context_data["unread"].timed_out.count("maintenance mode") == 1


def broken(*_: object, **__: object) -> object:
    with database.connection().cursor() as cursor:
        cursor.execute("SELECT nothing FROM nowhere")
        return cursor.fetchone()


@pytest.mark.both
def test_a_query_that_the_database_rejects_is_no_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    fill(1)
    monkeypatch.setattr(type_runs, "lately", broken)
    page = root().get(at("overview/")).content.decode()
    assert "could not be read: types." in page
    assert "took too long" not in page
    monkeypatch.setattr(known_queues, "by_load", broken)
    page = root("other").get(at("queue/")).content.decode()
    assert "could not be read: queues" in page
    assert "took too long" not in page


@pytest.mark.once
@pytest.mark.parametrize("page", ["queue/?q=%00queue", "cronjob/?q=%00", "workflow/?q=%00"])
def test_a_search_for_a_character_that_no_text_has_is_no_error(page: str) -> None:
    fill(1)
    response = root().get(at(page))
    assert response.status_code == 200
    assert "could not be read" not in response.content.decode()


@pytest.mark.both
@pytest.mark.postgresql
def test_the_callers_transaction_keeps_its_own_timeout() -> None:
    with transaction.atomic(), database.connection().cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = '7s'")
        with timed_queries(0.5) as query:
            assert query("everything", endless) is None
        cursor.execute("SHOW statement_timeout")
        assert cursor.fetchone() == ("7s",)


@pytest.mark.parametrize("page", ["overview/", "queue/", "queue/queue-0/change/"])
def test_a_page_shows_what_it_knows(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(1)
    monkeypatch.setattr(queue_flows, "flows", endless)
    monkeypatch.setattr(query_timeout.timed_queries.__wrapped__, "__defaults__", (0.2,))
    response = root().get(at(page))
    assert response.status_code == 200
    assert "took too long: throughput" in response.content.decode()
    assert "queue-0" in response.content.decode()

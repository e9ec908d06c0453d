"""The pages respond, empty and with rows, within a budget of queries."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.test.utils import CaptureQueriesContext

from django_ojs.extensions.statistics import rollups
from django_ojs.extensions.statistics.extension import StatisticsExtension
from django_ojs.models import Queue
from django_ojs.operations import queues
from django_ojs.storage import database
from tests import factories
from tests.admin.users import at, root
from tests.browser.test_accessibility import incident
from tests.model_factories import RollupFactory

pytestmark = pytest.mark.django_db

BASE = "/admin/django_ojs/"
LISTS = ("overview", "queue", "worker", "event", "cronjob", "workflow", "auditentry")
#: Statements of a page, those of session and user included, those of transactions not.
BUDGET = 24
TRANSACTION = ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE")


def fill(number: int = 3) -> list[str]:
    names = []
    for n in range(number):
        name = f"queue-{n}"
        queues.configure(name, {"backpressure": {"max_depth": 4 + n}})
        factories.in_state("discarded", queue=name)
        factories.push_many(3, queue=name)
        names.append(name)
        factories.WorkerFactory(id=f"worker-{n}", queues=(name,), concurrency=4)
    rollups.flush()
    return names


def budget(address: str) -> int:
    User.objects.all().delete()
    client = root()
    client.get(address)
    with CaptureQueriesContext(database.connection()) as captured:
        response = client.get(address)
    assert response.status_code == 200
    texts = [each["sql"].partition(" ")[0] for each in captured.captured_queries]
    return sum(text not in TRANSACTION for text in texts)


def test_a_page_without_anything_to_show_says_what_to_do_next() -> None:
    client = root()
    for page in LISTS:
        response = client.get(at(f"{page}/"))
        assert response.status_code == 200, page
        assert "ojs-empty" in response.content.decode(), page


@pytest.mark.sqlite
def test_each_page_of_an_incident_is_there_on_sqlite_too() -> None:
    # On PostgreSQL a browser opens the same pages, and most tests of the admin run there only.
    client = root()
    for address in incident():
        status = client.get(at(address)).status_code
        assert status == (404 if "gone" in address else 200), address


def test_a_page_takes_as_many_queries_for_many_queues_as_for_few() -> None:
    fill(2)
    factories.push(queue="more")
    factories.WorkerFactory(id="more", queues=("more",), concurrency=4)
    few = {page: budget(at(f"{page}/")) for page in LISTS}
    assert max(few.values()) <= BUDGET, few
    for n in range(20):
        factories.push(queue=f"more-{n}")
        factories.WorkerFactory(id=f"more-{n}", queues=(f"more-{n}",), concurrency=4)
    for page in LISTS:
        assert budget(at(f"{page}/")) <= few[page], page


@pytest.mark.statements
def test_the_pages_of_a_queue_and_of_a_worker_respond_within_the_budget() -> None:
    (name,) = fill(1)
    assert budget(f"{BASE}queue/{name}/change/") <= BUDGET
    assert budget(f"{BASE}worker/worker-0/change/") <= BUDGET


def test_a_page_says_at_what_time_it_was_true() -> None:
    # How long ago stays wrong in a tab that rests.
    fill(1)
    client = root()
    for page in ("overview", "queue", "worker", "job", "deadletterjob"):
        text = client.get(at(f"{page}/")).content.decode()
        assert re.search(r"As of <time [^>]+>\d\d:\d\d:\d\d [A-Z]+</time>\.", text), page


@pytest.mark.parametrize("address", ["overview/", "queue/", "queue/email/change/", "apikey/add/"])
def test_a_page_says_where_it_is_in_the_markup_of_this_version_of_django(address: str) -> None:
    # Django 6.1 styles a list, and earlier versions a div.
    queues.configure("email", {})
    client = root()
    form = {"name": "shop", "scopes": ["read"]}
    response = client.post(at(address), form) if "add" in address else client.get(at(address))
    own = re.findall(r'<(\w+) class="breadcrumbs">(.*?)</\1>', response.content.decode(), re.DOTALL)
    django = client.get("/admin/auth/user/add/").content.decode()
    ((tag, inside),) = own
    assert re.findall(r'<(\w+) class="breadcrumbs">', django) == [tag]
    assert ("<li" in inside) == (tag == "ol")
    assert '<a href="/admin/">Home</a>' in inside
    if "change" in address:
        assert f'<a href="{BASE}queue/">Queues</a>' in inside


def test_an_object_that_is_named_as_a_part_of_an_address_has_its_pages() -> None:
    client = root()
    for name in ("action", "add", "change", "history"):
        factories.push(queue=name)
        client.post(at("queue/action/pause/"), {"key": name})
        for page in (f"queue/{name}/change/", f"queue/{name}/history/"):
            response = client.get(at(page))
            assert response.status_code == 200, page
            assert "paused" in response.content.decode(), page


def test_the_page_of_an_extension_is_no_object(monkeypatch: pytest.MonkeyPatch) -> None:
    def page_urls(extension: StatisticsExtension, page: Any) -> Any:
        return (page.pattern("report/history/", page.action_view, "report"),)

    monkeypatch.setattr(StatisticsExtension, "page_urls", page_urls)
    urls = admin.site.get_model_admin(Queue).get_urls()
    found = next(each for each in urls if each.resolve("report/history/"))
    assert found.name == "django_ojs_queue_report"


def test_a_queue_has_its_ready_scheduled_and_retrying_jobs_and_its_threshold() -> None:
    queues.configure("email", {"backpressure": {"max_depth": 10, "warning_threshold": 0.5}})
    for state in ("retryable", "scheduled", "scheduled", "available"):
        factories.in_state(state, queue="email")
    client = root()
    for page in ("queue/", "queue/email/change/"):
        text = client.get(at(page)).content.decode()
        assert ">1 · 2 · 1<" in text
        assert '<line x1="50.0%" x2="50.0%"' in text
        assert "● open" in text


@pytest.mark.both
@pytest.mark.parametrize(
    ("period", "ago", "unit"),
    [
        *(("", 30, "per minute"), ("6h", 300, "per 5 min"), ("day", 1_200, "per hour")),
        *(("week", 9_000, "per hour"), ("<x>", 30, "per minute")),
    ],
)
def test_the_charts_of_a_queue_have_rejections_drops_and_changes_of_a_period(
    period: str, ago: int, unit: str
) -> None:
    queues.pause("email")
    RollupFactory(ago=timedelta(minutes=ago), enqueued=3, completed=5, rejected=7, dropped=11)
    page = root().get(f"{BASE}queue/email/change/", {"period": period}).content.decode()
    assert "rejected <b>7</b>" in page
    assert "dropped <b>11</b>" in page
    assert f"<small>{unit}</small>" in page
    assert "paused, " in page
    assert page.count('class="ojs-marker"') == 1


@pytest.mark.parametrize(
    ("page", "next_step"),
    [
        ("ojs_limits/limitkey", "Search for the beginning of a key."),
        ("ojs_outbox/outboxentry", "names the servers to which jobs are sent."),
        ("ojs_webhooks/webhook", "Add one, and events are sent to its URL."),
        ("django_ojs/apikey", "Add one for each program that uses the HTTP API."),
    ],
)
def test_an_empty_list_says_what_to_do_next_and_a_search_leads_back(
    page: str, next_step: str
) -> None:
    client = root()
    text = client.get(f"/admin/{page}/").content.decode()
    assert next_step in text
    assert "_selected_action" not in text
    text = client.get(f"/admin/{page}/?q=nothing&after=x").content.decode()
    assert next_step not in text
    assert 'Nothing matches. <a href="?">Show all</a>' in text
    assert "This page does not exist any more" in text

"""One navigation on all pages: what the user may view, where they are, and what needs them."""

from __future__ import annotations

import re

import pytest
from django.contrib.staticfiles import finders
from django.db import DatabaseError
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext

from django_ojs.admin import navigation
from django_ojs.models import Job
from django_ojs.operations import fail, keyset, queues
from django_ojs.operations.jobs import dead_letters
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.reports import health_queries
from django_ojs.spec.states import State
from django_ojs.storage import database
from tests.admin.users import VIEW, at, root, staff
from tests.command_line.run import ojs
from tests.factories import BOOM, active, hourly, in_state, push

pytestmark = [pytest.mark.django_db, pytest.mark.once]

BASE = "/admin/django_ojs/"

ALL = (
    *("Overview", "Queues", "Jobs", "Dead letters", "Workers", "Workflows", "Cron jobs"),
    *("Limit keys", "Bulk operations", "Audit trail", "Events", "Webhooks", "Outbox", "API keys"),
)


def links(client: Client, address: str) -> dict[str, tuple[str, str]]:
    """Return the links of the navigation by their text: the URL, and the value of aria-current."""
    page = client.get(address, follow=True)
    assert page.status_code == 200
    (inside,) = re.findall(r'<nav class="ojs ojs-nav.*?</nav>', page.content.decode(), re.DOTALL)
    found = re.findall(r'<a href="([^"]+)"(?: aria-current="(\w+)")?>(.*?)</a>', inside)
    return {re.sub(r"<[^>]+>", "", text).strip(): (url, here) for url, here, text in found}


def die(number: int) -> None:
    policy = hourly(1, on_exhaustion="dead_letter")
    for _ in range(number):
        fail.fail(active(queue="email", retry=policy).id, BOOM)


@pytest.mark.repeats
@pytest.mark.parametrize(
    ("page", "current", "value"),
    [
        *(("overview/", "Overview", "page"), ("queue/", "Queues", "page")),
        *(("queue/email/change/", "Queues", "true"), ("queue/email/history/", "Queues", "true")),
        ("queue/action/configure/?key=email", "Queues", "true"),
        ("bulkoperation/create/retry/?q=is:dead", "Bulk operations", "true"),
        *(("apikey/", "API keys", "page"), ("apikey/add/", "API keys", "true")),
        *(("outboxentry/", "Outbox", "page"), ("webhook/add/", "Webhooks", "true")),
    ],
)
def test_each_page_has_it_and_marks_where_the_user_is(page: str, current: str, value: str) -> None:
    queues.configure("email", {})
    found = links(root(), at(page))
    assert tuple(found) == ALL
    assert {label: here for label, (_, here) in found.items() if here} == {current: value}


def test_the_page_of_a_new_secret_has_it_too() -> None:
    response = root().post(f"{BASE}apikey/add/", {"name": "shop", "scopes": ["read"]})
    assert "ojs-navigation" in response.content.decode()


def test_it_has_only_the_pages_that_the_user_may_view() -> None:
    die(1)
    client = staff("view_queue", "view_worker")
    assert tuple(links(client, f"{BASE}queue/")) == ("Queues", "Workers")
    # Numbers that the user does not see cost nothing.
    with CaptureQueriesContext(database.connection()) as captured:
        client.get(f"{BASE}queue/")
    assert not any('"dead_letter"' in query["sql"] for query in captured.captured_queries)


def test_it_has_the_number_of_problems_and_of_dead_letters() -> None:
    die(2)
    push(queue="email")
    client = staff(*VIEW)
    page = client.get(f"{BASE}overview/").content.decode()
    problems = len(re.findall(r'<li class="ojs-is-(?:bad|fair)">', page))
    assert problems == 2
    found = links(client, f"{BASE}worker/")
    assert "Overview 2 problems" in found
    assert "Dead letters 2 jobs" in found
    assert 'class="ojs-count ojs-is-bad">2<' in client.get(f"{BASE}worker/").content.decode()


def test_without_a_problem_there_is_no_number() -> None:
    assert tuple(links(root(), f"{BASE}worker/")) == ALL


@pytest.mark.both
def test_the_number_of_dead_letters_is_the_same_wherever_it_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The limits of what is read do not show in the number: the counts have it.
    monkeypatch.setattr(keyset, "COUNT_LIMIT", 2)
    die(5)
    Job.objects.filter(pk=in_state("discarded").pk).update(dead_letter=False)
    client = root()
    assert "Dead letters 5 jobs" in links(client, f"{BASE}worker/")
    assert "5 in total" in client.get(f"{BASE}deadletterjob/").content.decode()
    assert "5 jobs" in client.get(f"{BASE}job/?q=is:dead").content.decode()
    assert "Dead letters: 5." in ojs("dead-letters").out
    assert "There are 5 jobs." in ojs("jobs", "is:dead", "--limit", "2").out
    assert dead_letters.figures().total == 5
    queue = Job.objects.filter(dead_letter=True).values_list("queue", flat=True)[0]
    assert JobFilter(dead_letter=True, queue=queue).number() == 5
    assert JobFilter(dead_letter=False, states=(State.DISCARDED,)).number() == 1
    assert JobFilter(dead_letter=True, states=(State.ACTIVE,)).number() == 0


def test_the_numbers_are_not_read_again_on_each_page() -> None:
    die(1)
    client = root()
    taken = []
    for _ in range(2):
        with CaptureQueriesContext(database.connection()) as captured:
            assert "Overview 1 problem" in links(client, f"{BASE}worker/")
        texts = [each["sql"] for each in captured.captured_queries]
        taken.append(sum("ojs_rollup" in text or '"dead_letter"' in text for text in texts))
    assert taken[0] > 0
    assert taken[1] == 0


def test_a_number_that_could_not_be_read_anew_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    die(1)
    client = root()
    assert "Overview 1 problem" in links(client, f"{BASE}worker/")

    def fail(*_: object) -> None:
        raise DatabaseError

    monkeypatch.setattr(health_queries, "observe", fail)
    monkeypatch.setattr(navigation, "_dead_letters", fail)
    page = client.get(f"{BASE}overview/").content.decode()
    assert "could not be read: failures" in page
    found = links(client, f"{BASE}deadletterjob/")
    assert "Overview 1 problem" in found
    assert "Dead letters 1 job" in found


def test_the_page_of_dead_letters_has_their_number_of_now() -> None:
    client = root()
    links(client, f"{BASE}worker/")
    die(1)
    assert "Dead letters 1 job" in links(client, f"{BASE}deadletterjob/")


def test_a_popup_has_none() -> None:
    page = root().get(f"{BASE}apikey/?_popup=1").content.decode()
    assert "ojs-navigation" not in page


@override_settings(ROOT_URLCONF="tests.admin.site")
def test_it_links_to_the_site_that_it_is_on() -> None:
    for page in ("worker/", "apikey/", "apikey/add/"):
        found = links(root(page), f"/back/office/django_ojs/{page}")
        assert tuple(found) == ALL
        assert all(url.startswith("/back/office/") for url, _ in found.values())


def test_six_pages_are_shown_and_the_others_are_a_list() -> None:
    page = root().get(f"{BASE}event/").content.decode()
    first, rest = page.split('<details class="ojs-more">', 1)
    assert first.count("<li><a", first.index("ojs-navigation")) == 6
    # The word of the list is the page, where that is one of it.
    assert '<summary class="ojs-current">Events</summary>' in rest
    assert rest[: rest.index("</details>")].count("<li><a") == len(ALL) - 6
    assert ">More</summary>" in root("other").get(f"{BASE}job/").content.decode()
    # One page more is no reason for a list.
    assert "ojs-more" not in staff("view_queue").get(f"{BASE}queue/").content.decode()


@pytest.mark.parametrize(
    "page", ["job/", "job/enqueue/", "apikey/", "apikey/add/", "queue/action/purge/?key=mail"]
)
def test_who_may_not_see_a_page_gets_one_with_a_way_back(page: str) -> None:
    response = staff("view_queue").get(f"{BASE}{page}")
    shown = response.content.decode()
    assert response.status_code == 403
    assert "You may not see this page" in shown
    assert f'href="{BASE}queue/"' in shown
    assert '<a href="/admin/">Back to the start</a>' in shown


@pytest.mark.parametrize("page", ["job/", "apikey/", "apikey/add/"])
def test_a_page_names_its_icon_so_that_a_browser_asks_for_no_other(page: str) -> None:
    shown = root().get(f"{BASE}{page}").content.decode()
    (address,) = re.findall(r'<link rel="icon" href="/static/([^"]+)">', shown)
    assert finders.find(address)

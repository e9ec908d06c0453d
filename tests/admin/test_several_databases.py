"""The admin where jobs are in several databases: figures of all, a switch, objects of any."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from unittest import mock

import pytest
from django.db import OperationalError, connections, transaction
from django.db.models.functions import Now
from django.test import Client, override_settings

import django_ojs as ojs
from django_ojs.admin import query_timeout
from django_ojs.models import ApiKey, BulkOperation, Job, LimitKey, Queue
from django_ojs.operations import queues
from django_ojs.operations.access import api_keys, key_expiry
from django_ojs.storage.figures import rollups
from tests.admin.users import root

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

BASE = "/admin/django_ojs/"
ALIASES = ("default", "other")


@pytest.fixture(autouse=True)
def several() -> Iterator[None]:
    with override_settings(OJS={"DATABASES": ["default", "other"]}):
        yield


def text(client: Client, path: str) -> str:
    response = client.get(BASE + path)
    assert response.status_code == 200, path
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", response.content.decode()))


def current(client: Client, path: str) -> str:
    """Return what the switch of a page says."""
    page = client.get(BASE + path).content.decode()
    found = re.search(r'aria-label="Database">(.*?)</nav>', page, re.S)
    assert found
    (marked,) = re.findall(r'aria-current="true">([^<]+)<', found[1])
    return str(marked)


def test_the_pages_show_one_system() -> None:
    keys = {}
    for alias, number in (("default", 2), ("other", 3)):
        with ojs.using(alias):
            queues.configure("shared", {"backpressure": {"max_depth": 3}})
        with transaction.atomic(using=alias):
            keys[alias] = [ojs.enqueue(f"job.{alias}", queue="shared").id for _ in range(number)]
    rollups.flush()
    client = root()

    # Figures are those of all; what is wrong says in which database.
    overview = text(client, "overview/")
    assert "5 waiting" in overview or re.search(r"\b5 / 6\b|\b5 of 6\b", overview), overview
    assert "other: Queue shared is full : 3 of 3" in overview
    assert "default: Queue shared is full" not in overview
    assert current(client, "overview/") == "All databases"
    # Rows are those of one database: of the first, or of the one that was chosen.
    assert "job.default" in text(client, "job/")
    assert "job.other" not in text(client, "job/")
    assert current(client, "job/") == "default"
    assert "job.other" in text(client, "job/?database=other")
    for page in ("job/", "overview/", "worker/", "event/", "auditentry/", "workflow/"):
        assert current(client, page) == "other"
    assert "job.default" not in text(client, "job/")
    # A job is found by its id wherever it is, and so is what is done to it.
    for alias in ALIASES:
        shown = text(client, f"job/{keys[alias][0]}/change/")
        assert f"In the database {alias}." in shown
    selected = [str(keys[alias][0]) for alias in ALIASES]
    confirm = client.get(f"{BASE}job/action/cancel/", {"key": selected})
    assert all(key in confirm.content.decode() for key in selected)
    client.post(f"{BASE}job/action/cancel/", {"key": selected, "confirmed": "1"})
    for alias in ALIASES:
        assert Job.objects.using(alias).get(pk=keys[alias][0]).state == "cancelled"
    # A queue is one of all databases.
    client.post(f"{BASE}queue/action/pause/", {"key": "shared", "confirmed": "1"})
    for alias in ALIASES:
        assert Queue.objects.using(alias).get(pk="shared").paused_at is not None
    # One that is paused in the first only is paused in the other, and each says what it did.
    with ojs.using("other"):
        queues.resume("shared")
    client.post(f"{BASE}queue/action/pause/", {"key": "shared", "confirmed": "1"})
    assert Queue.objects.using("other").get(pk="shared").paused_at is not None
    purged = client.post(
        f"{BASE}queue/action/purge/",
        {"key": "shared", "confirmed": "1", "states": "cancelled", "confirm_name": "shared"},
        follow=True,
    ).content.decode()
    # One of each: a sum is not hidden behind equal numbers.
    for alias in ALIASES:
        assert f"{alias}: 1 job of shared (cancelled) deleted." in purged.lower()
    for alias in ALIASES:
        assert not Job.objects.using(alias).filter(state="cancelled").exists()
    # Three are left in all, one of them in the first.
    for database, waiting in (("default", 1), ("other", 2), ("*", 3)):
        shown = text(client, f"queue/shared/change/?database={database}")
        assert f"Available {waiting} Pending" in shown, shown
    assert current(client, "queue/shared/change/") == "All databases"
    assert current(client, "job/") == "default"


def test_a_database_that_is_down_leaves_the_pages_of_the_others() -> None:
    keys = {}
    for alias in ALIASES:
        with transaction.atomic(using=alias):
            keys[alias] = ojs.enqueue(f"job.{alias}").id
    client = root()
    text(client, "job/?database=other")
    connections["other"].close()
    away = OperationalError("connection refused")
    with mock.patch.object(connections["other"], "ensure_connection", side_effect=away):
        for page in ("job/", "worker/", "event/", "queue/", "overview/?database=*"):
            shown = text(client, page)
            assert "because the database does not respond: other." in shown, page
        assert "job.default" in text(client, "job/?database=other")
        assert "job.default" in text(client, f"job/{keys['default']}/change/")
        # It may be there.
        assert client.get(f"{BASE}job/{keys['other']}/change/").status_code == 503
    connections["other"].close()
    assert "job.other" in text(client, "job/?database=other")


def test_a_limit_key_is_paused_wherever_it_is() -> None:
    def add(alias: str, key: str) -> None:
        with transaction.atomic(using=alias):
            ojs.enqueue("job.limited", rate_limit={"key": key, "concurrency": 1})

    for alias, key in (("default", "both"), ("other", "both"), ("other", "far")):
        add(alias, key)
    client = root()
    page = f"{BASE}limitkey/far/change/"
    assert client.get(page).status_code == 302
    done = client.post(
        f"{BASE}limitkey/action/pause/",
        {"key": ["both", "far"], "confirmed": "1", "duration": "2h"},
        follow=True,
    )
    assert "2 paused." in done.content.decode()
    paused = {alias: set(_paused(alias)) for alias in ALIASES}
    assert paused == {"default": {"both"}, "other": {"both", "far"}}
    # What is paused is named with its database, and leads there.
    overview = client.get(f"{BASE}overview/").content.decode()
    assert overview.count("Limit key both is paused") == 2
    assert f'href="{page}?database=other"' in overview
    assert "Limit key far" not in text(client, "overview/?database=default")
    assert "In the database" not in text(client, "limitkey/far/change/?database=other")
    assert current(client, "limitkey/") == "other"
    assert ">far<" in client.get(f"{BASE}limitkey/").content.decode()
    assert ">far<" not in client.get(f"{BASE}limitkey/?database=default").content.decode()
    act = {"action": "resume_selected", "_selected_action": ["far"], "database": "other"}
    client.post(f"{BASE}limitkey/", act)
    assert _paused("other") == ["both"]
    # An override is that of the database whose page was shown.
    limits = {"concurrency": "7", "rate": "", "rate_period": "", "throttle": ""}
    limits |= {"throttle_period": "", "override_until": "", "database": "other"}
    assert client.post(f"{BASE}limitkey/both/change/", limits).status_code == 302
    overridden = {alias: LimitKey.objects.using(alias).get(pk="both").override for alias in ALIASES}
    assert overridden == {"default": {}, "other": {"concurrency": 7}}


def _paused(alias: str) -> list[str]:
    rows = LimitKey.objects.using(alias).filter(paused_until__isnull=False)
    return list(rows.order_by("pk").values_list("pk", flat=True))


def test_pages_of_one_database_have_no_switch() -> None:
    client = root()
    with override_settings(OJS={}):
        for page in ("overview/", "job/?database=other"):
            response = client.get(BASE + page)
            assert 'aria-label="Database"' not in response.content.decode()
            assert "ojs_database" not in response.cookies


def test_what_is_confirmed_is_done_in_the_database_that_was_shown() -> None:
    for alias in ALIASES:
        with transaction.atomic(using=alias):
            ojs.enqueue("job.same", queue="mail")
    client = root()
    listed = client.get(f"{BASE}job/?database=other&q=queue:mail&all=1").content.decode()
    (link,) = re.findall(r'href="([^"]*/cancel/\?[^"]*)"', listed)
    # Meanwhile another tab of the browser shows the other database.
    text(client, "job/?database=default")
    page = client.get(html.unescape(link)).content.decode()
    assert 'name="database" value="other"' in page
    text(client, "job/?database=default")
    fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page))
    done = client.post(html.unescape(link), {**fields, "confirmed": "1"}, follow=True)
    assert done.status_code == 200
    operation = BulkOperation.objects.using("other").get()
    # The pages that follow are those of that database: ids of operations are not unique over all.
    assert current(client, "bulkoperation/") == "other"
    assert "queue:mail" in text(client, f"bulkoperation/{operation.pk}/change/")
    assert not BulkOperation.objects.using("default").exists()


@pytest.mark.postgresql
def test_a_database_that_hangs_delays_no_page_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_timeout.timed_queries.__wrapped__, "__defaults__", (0.2,))
    client = root()
    other = connections["other"].copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("BEGIN; LOCK TABLE ojs_job, ojs_count, ojs_queue, ojs_worker")
        # Without its own timeout there, this would wait for the lock for ever.
        shown = text(client, "overview/?database=*")
        assert "because the database does not respond: other." in shown
    finally:
        other.close()
    assert "does not respond" not in text(client, "overview/?database=*")


def test_api_keys_are_at_home_whichever_database_is_selected() -> None:
    with ojs.using("other"):
        key, presented = api_keys.create(name="program", scopes=["read"])
        # As a middleware that selects a database would leave it for a request.
        assert api_keys.find(presented).prefix == key.prefix
        api_keys.replace(key.prefix)
        assert key_expiry.with_replacement(api_keys.keys()).count() == 2
    assert ApiKey.objects.using("default").count() == 2
    assert not ApiKey.objects.using("other").exists()
    # Such a finding is one of the home alone.
    ApiKey.objects.using("default").update(revoked_at=Now(), rejected_at=Now())
    overview = text(root(), "overview/?database=*")
    assert overview.count(f"({key.prefix})") == 1, overview


@pytest.mark.parametrize("alias", ALIASES)
@pytest.mark.parametrize("shown", ALIASES)
def test_a_job_is_edited_and_run_in_its_database_whichever_is_shown(alias: str, shown: str) -> None:
    with transaction.atomic(using=alias):
        job = ojs.enqueue("test.job", [1])
    ojs.cancel(job.id)
    client = root()
    client.cookies["ojs_database"] = shown
    address = f"{BASE}job/enqueue/"
    assert f"{address}?copy={job.id}" in client.get(f"{BASE}job/{job.id}/change/").content.decode()
    assert client.get(f"{address}?copy={job.id}").status_code == 200
    form = {"copy": str(job.id), "arguments": "[1]", "queue": "default", "priority": "0"}
    assert client.post(address, form).status_code == 302
    assert Job.objects.using(alias).count() == 2
    assert client.get(f"{address}?copy=nothing").status_code == 404

"""The actions on workers."""

from __future__ import annotations

import pytest
from django.contrib.messages import get_messages

from django_ojs.extensions.audit.models import AuditEntry
from django_ojs.models import Worker
from django_ojs.models.worker import Directive
from tests import factories
from tests.admin.test_pages import BASE
from tests.admin.users import root

pytestmark = [pytest.mark.django_db, pytest.mark.once]

DO = f"{BASE}worker/action/"


def test_a_worker_is_directed_to_be_quiet_and_to_run_again() -> None:
    factories.WorkerFactory(id="w")
    client = root()
    client.post(f"{DO}quiet/", {"key": "w"})
    assert Worker.objects.get(pk="w").directive == Directive.QUIET
    client.post(f"{DO}resume/", {"key": "w"})
    assert Worker.objects.get(pk="w").directive == Directive.RUNNING


def test_terminating_asks_first_and_nothing_leads_back() -> None:
    factories.WorkerFactory(id="w")
    client = root()
    assert client.post(f"{DO}terminate/", {"key": "w"}).status_code == 200
    assert Worker.objects.get(pk="w").directive == Directive.RUNNING
    client.post(f"{DO}terminate/", {"key": "w", "confirmed": "1"})
    assert Worker.objects.get(pk="w").directive == Directive.TERMINATE
    response = client.post(f"{DO}resume/", {"key": "w"})
    assert "terminate, which is final" in " ".join(map(str, get_messages(response.wsgi_request)))


def test_deregistering_says_how_many_jobs_come_back_and_skips_whoever_still_beats() -> None:
    for name in ("silent", "alive"):
        factories.WorkerFactory(id=name)
    held = factories.active("silent", queue="alpha")
    factories.silence("silent")
    client = root()
    asked = client.get(f"{DO}deregister/", {"key": "silent"}).content.decode()
    assert "1 job in flight is recovered" in asked
    response = client.post(f"{DO}deregister/", {"key": ["silent", "alive"], "confirmed": "1"})
    text = " ".join(map(str, get_messages(response.wsgi_request)))
    assert "1 deregistered, 1 skipped" in text
    assert "still sends its beats" in text
    assert list(Worker.objects.values_list("pk", flat=True)) == ["alive"]
    assert factories.read(held.id).state == "available"


def test_a_page_offers_what_the_workers_condition_allows() -> None:
    factories.WorkerFactory(id="w")
    client, page = root(), f"{BASE}worker/w/change/"
    shown = client.get(page).content.decode()
    assert "/action/quiet/" in shown
    assert "/action/deregister/" not in shown
    factories.silence("w")
    shown = client.get(page).content.decode()
    assert "/action/deregister/" in shown
    assert "/action/quiet/" not in shown


@pytest.mark.both
def test_the_slots_of_a_worker_are_changed_within_its_limits() -> None:
    factories.WorkerFactory(id="elastic", concurrency=8, least_slots=8, most_slots=32)
    factories.WorkerFactory(id="fixed", concurrency=8)
    client = root()
    assert "Change slots" in client.get(f"{BASE}worker/elastic/change/").content.decode()
    assert "Change slots" not in client.get(f"{BASE}worker/fixed/change/").content.decode()
    asked = client.get(f"{DO}slots/", {"key": "elastic"}).content.decode()
    assert "elastic was started with 8 to 32 slots." in asked
    assert 'value="8"' in asked
    client.post(f"{DO}slots/", {"key": "elastic", "confirmed": "1", "slots": "16"})
    assert Worker.objects.get(pk="elastic").wanted_slots == 16
    (entry,) = AuditEntry.primary.filter(object_id="elastic")
    assert entry.changes == {"slots": [8, 16]}
    # Another number stays in the form, with the reason.
    again = client.post(f"{DO}slots/", {"key": "elastic", "confirmed": "1", "slots": "33"})
    assert "The worker takes 8 to 32 slots." in again.content.decode()
    again = client.post(f"{DO}slots/", {"key": "fixed", "confirmed": "1", "slots": "9"})
    assert "start it with --threads 8:32" in again.content.decode()
    assert not Worker.objects.get(pk="fixed").wanted_slots

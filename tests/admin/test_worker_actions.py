"""The actions on workers."""

from __future__ import annotations

import pytest
from django.contrib.messages import get_messages

from django_ojs.models import Worker
from django_ojs.models.worker import Directive
from tests import factories
from tests.admin.test_pages import BASE
from tests.admin.users import root

pytestmark = [pytest.mark.django_db, pytest.mark.once]

DO = f"{BASE}worker/action/"


def test_a_worker_is_directed_to_be_quiet_and_to_run_again() -> None:
    factories.worker("w")
    client = root()
    client.post(f"{DO}quiet/", {"key": "w"})
    assert Worker.objects.get(pk="w").directive == Directive.QUIET
    client.post(f"{DO}resume/", {"key": "w"})
    assert Worker.objects.get(pk="w").directive == Directive.RUNNING


def test_terminating_asks_first_and_nothing_leads_back() -> None:
    factories.worker("w")
    client = root()
    assert client.post(f"{DO}terminate/", {"key": "w"}).status_code == 200
    assert Worker.objects.get(pk="w").directive == Directive.RUNNING
    client.post(f"{DO}terminate/", {"key": "w", "confirmed": "1"})
    assert Worker.objects.get(pk="w").directive == Directive.TERMINATE
    response = client.post(f"{DO}resume/", {"key": "w"})
    assert "terminate, which is final" in " ".join(map(str, get_messages(response.wsgi_request)))


def test_deregistering_says_how_many_jobs_come_back_and_skips_whoever_still_beats() -> None:
    for name in ("silent", "alive"):
        factories.worker(name)
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
    factories.worker("w")
    client, page = root(), f"{BASE}worker/w/change/"
    shown = client.get(page).content.decode()
    assert "/action/quiet/" in shown
    assert "/action/deregister/" not in shown
    factories.silence("w")
    shown = client.get(page).content.decode()
    assert "/action/deregister/" in shown
    assert "/action/quiet/" not in shown

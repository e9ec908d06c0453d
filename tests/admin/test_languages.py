"""The admin in another language, and the commands, which are English."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from django.test import override_settings
from django.utils import translation

from django_ojs import formatting as plain
from django_ojs.admin import formatting
from django_ojs.extensions.audit.models import AuditEntry
from django_ojs.models import ApiKey
from django_ojs.operations import fail
from django_ojs.operations.access import api_keys
from django_ojs.spec.failure import Failure
from tests.admin.test_pages import BASE
from tests.admin.test_queue_actions import known, said
from tests.admin.users import root
from tests.command_line.run import ojs
from tests.factories import active, push

pytestmark = [pytest.mark.django_db, pytest.mark.once]


@pytest.fixture
def in_german() -> Iterator[None]:
    with override_settings(LANGUAGE_CODE="de"):
        yield


@pytest.mark.usefixtures("in_german")
def test_a_message_is_in_the_language_of_the_site() -> None:
    known("mail", "reports")
    client = root()
    address = f"{BASE}queue/action/pause/"

    paused = "Queue mail ist angehalten: Sie nimmt Jobs an, und Worker holen keine ab."
    assert said(client.post(address, {"key": "mail"})) == paused
    again = said(client.post(address, {"key": ["mail", "reports"]}))
    assert again.endswith("1 angehalten, 1 übersprungen: Die Queue ist bereits angehalten.")
    assert {entry.action for entry in AuditEntry.primary.all()} == {"queue.paused"}
    assert "Auslastung" in client.get(f"{BASE}queue/").content.decode()


@pytest.mark.usefixtures("in_german")
def test_commands_are_english() -> None:
    stored = push(queue="mail")

    assert "No worker takes jobs from the queue mail." in ojs("show", stored.pk).out
    assert "Queue mail is paused" in ojs("pause", "mail").out
    assert "id must be a UUIDv7 in lowercase" in ojs("show", "none").err
    assert "1 deleted" in ojs("purge", "mail", "--state", "available", "--yes").out


@pytest.mark.usefixtures("in_german")
def test_numbers_and_durations_follow_the_language() -> None:
    assert formatting.number(1_234_567) == "1.234.567"
    assert formatting.number(1.25) == "1,2"
    assert formatting.duration(3.3) == f"3,3{formatting.THIN}s"
    assert formatting.duration(90_000) == f"1{formatting.THIN}d 1{formatting.THIN}h"
    moment = datetime(2026, 3, 1, 14, 5, 9, tzinfo=UTC)
    assert formatting.absolute_time(moment) == "01.03.2026 14:05:09 UTC"
    with translation.override("fr"):
        assert formatting.number(1_234_567) == "1\N{NO-BREAK SPACE}234\N{NO-BREAK SPACE}567"
        assert formatting.duration(90_000) == f"1{formatting.THIN}j 1{formatting.THIN}h"
    assert plain.grouped(1_234_567) == "1,234,567"
    assert plain.duration(3.3) == "3.3 s"
    assert plain.absolute_time(moment) == "2026-03-01 14:05:09 UTC"


@override_settings(LANGUAGE_CODE="de", USE_THOUSAND_SEPARATOR=True)
def test_the_key_of_a_selected_row_is_no_number_for_a_person() -> None:
    key, _text = api_keys.create(name="shop", scopes=["read"])
    ApiKey.objects.filter(pk=key.pk).update(id=1_234_567)
    client, address = root(), f"{BASE}apikey/"
    (row,) = re.findall(
        r'name="_selected_action" value="(.*?)"', client.get(address).content.decode()
    )
    client.post(address, {"action": "revoke", "_selected_action": row})
    assert ApiKey.objects.get().revoked_at is not None


@pytest.mark.usefixtures("in_german")
def test_the_buttons_of_a_finding_have_no_english_word() -> None:
    job = active("one", queue="mail", type="renamed.away")
    failure = Failure(type="unknown_job_type", message="no handler")
    fail.postpone(job.id, failure, delay=timedelta(seconds=30))
    page = root().get(f"{BASE}overview/").content.decode()
    assert "alle abbrechen" in page
    assert "all abbrechen" not in page

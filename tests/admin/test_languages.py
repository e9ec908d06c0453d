"""The admin and the commands in another language, and what stays English."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.contrib.admin.models import LogEntry
from django.utils import translation

from django_ojs import formatting
from django_ojs.models import AuditEntry, Queue
from django_ojs.operations.cron import schedule
from tests.admin.test_pages import BASE
from tests.admin.test_queue_actions import known, said
from tests.admin.users import root
from tests.command_line.run import ojs
from tests.factories import push
from tests.languages import german

pytestmark = pytest.mark.django_db

TEXTS = {
    "Queue %(queue)s is paused: it accepts jobs, and workers fetch none.": (
        "Warteschlange %(queue)s ist angehalten."
    ),
    "%(count)d paused\0%(count)d paused": "%(count)d angehalten\0%(count)d angehalten",
    "The queue is already paused.": "Sie ist bereits angehalten.",
    "%(done)s, %(count)d skipped: %(reasons)s": "%(done)s, %(count)d übersprungen: %(reasons)s",
    "queues": "Warteschlangen",
    "No worker takes jobs from the queue %(queue)s.": "Kein Worker bedient %(queue)s.",
    "%(day)s %(time)s": "%(day)s %(time)s",
    "at %(times)s": "um %(times)s",
    "every weekday": "jeden Werktag",
    "%(first)s and %(last)s": "%(first)s und %(last)s",
    'after "on"\x04day %(numbers)s\0days %(numbers)s': "Tag %(numbers)s\0Tage %(numbers)s",
    "duration\x04%(number)s d": "%(number)s T",
}


@pytest.fixture
def in_german(tmp_path: Path) -> object:
    with german(tmp_path, TEXTS):
        yield


@pytest.mark.usefixtures("in_german")
def test_a_message_is_in_the_language_of_the_site_and_the_logs_are_english() -> None:
    known("mail", "reports")
    client = root()
    address = f"{BASE}queue/action/pause/"

    assert said(client.post(address, {"key": "mail"})) == "Warteschlange mail ist angehalten."
    again = said(client.post(address, {"key": ["mail", "reports"]}))
    assert again.endswith("1 angehalten, 1 übersprungen: Sie ist bereits angehalten.")
    stored = LogEntry.objects.get(object_id="mail").change_message
    assert stored == "Queue mail is paused: it accepts jobs, and workers fetch none."
    assert {entry.action for entry in AuditEntry.primary.all()} == {"queue.paused"}
    assert "Warteschlangen" in client.get(f"{BASE}queue/").content.decode()


@pytest.mark.usefixtures("in_german")
def test_a_command_writes_the_language_of_the_site_and_english_for_programs() -> None:
    stored = push(queue="mail")

    assert "Kein Worker bedient mail." in ojs("show", stored.pk).out
    reason = ojs("show", stored.pk, "--json").json["not_running"]["sentence"]
    assert reason == "No worker takes jobs from the queue mail."
    assert ojs("pause", "mail").out == "Warteschlange mail ist angehalten.\n"
    assert Queue.primary.get(pk="mail").paused
    assert ojs("pause", "mail", "--json").json == {"queues": {"mail": "paused"}}


@pytest.mark.usefixtures("in_german")
def test_numbers_durations_and_schedules_follow_the_language() -> None:
    assert formatting.number(1_234_567) == "1.234.567"
    assert formatting.number(1.25) == "1,2"
    assert formatting.duration(3.3) == f"3,3{formatting.THIN}s"
    assert formatting.duration(90_000) == f"1{formatting.THIN}T 1{formatting.THIN}h"
    assert schedule.describe("0 9,17 * * MON-FRI", "") == "jeden Werktag um 09:00 und 17:00"
    assert schedule.describe("0 9 * * MON", "").startswith("every Montag")
    with formatting.in_english():
        assert formatting.number(1_234_567) == "1 234 567".replace(" ", formatting.THIN)
        assert formatting.grouped(1_234_567) == "1,234,567"
        assert formatting.duration(3.3) == f"3.3{formatting.THIN}s"
        assert schedule.describe("0 9 * * MON-FRI", "") == "every weekday at 09:00"
        assert translation.get_language() is None
    with translation.override("fr"):
        assert formatting.number(1_234_567) == "1\N{NO-BREAK SPACE}234\N{NO-BREAK SPACE}567"

"""The admin and the commands in another language, and what stays English."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from django.test import override_settings
from django.utils import translation

from django_ojs import formatting
from django_ojs.formatting import localized
from django_ojs.models import AuditEntry, BulkOperation, Queue
from django_ojs.operations import fail, queues
from django_ojs.operations.cron import schedule
from django_ojs.operations.jobs import bulk_step
from django_ojs.spec.failure import Failure
from tests.admin.test_pages import BASE
from tests.admin.test_queue_actions import known, said
from tests.admin.users import root
from tests.command_line.run import ojs
from tests.factories import active, in_state, push

pytestmark = [pytest.mark.django_db, pytest.mark.once]


@pytest.fixture
def in_german() -> Iterator[None]:
    with override_settings(LANGUAGE_CODE="de"):
        yield


@pytest.mark.usefixtures("in_german")
def test_a_message_is_in_the_language_of_the_site_and_the_logs_are_english() -> None:
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
def test_a_command_writes_the_language_of_the_site_and_english_for_programs() -> None:
    stored = push(queue="mail")

    assert "Kein Worker holt Jobs aus der Queue mail ab." in ojs("show", stored.pk).out
    reason = ojs("show", stored.pk, "--json").json["not_running"]["sentence"]
    assert reason == "No worker takes jobs from the queue mail."
    assert "Queue mail ist angehalten" in ojs("pause", "mail").out
    assert Queue.primary.get(pk="mail").paused
    assert ojs("pause", "mail", "--json").json == {"queues": {"mail": "paused"}}


@pytest.mark.usefixtures("in_german")
@pytest.mark.django_db(transaction=True)
def test_reasons_of_a_bulk_operation_are_english_where_stored() -> None:
    for _ in range(2):
        in_state("discarded", queue="mail")
    waiting = push(queue="mail")
    queues.configure("mail", {"backpressure": {"max_depth": 2}})

    rejected = ojs("retry", waiting.pk)
    assert "Der Job ist available; für retry muss er discarded sein." in rejected.err
    assert "1: Queue mail ist voll\n" in ojs("retry", "queue:mail", "--yes").err
    operation = BulkOperation.primary.get()
    assert operation.reasons == {"queue mail is full": 1}
    page = root().get(f"{BASE}bulkoperation/{operation.pk}/change/").content.decode()
    assert page.count("Queue mail ist voll") == 2  # Among the reasons, and beside the job.
    stored = bulk_step.reason("The job is active; run_now needs it retryable or scheduled.")
    shown = "Der Job ist active; für run_now muss er retryable oder scheduled sein."
    assert localized(stored) == shown


@pytest.mark.usefixtures("in_german")
def test_numbers_durations_and_schedules_follow_the_language() -> None:
    assert formatting.number(1_234_567) == "1.234.567"
    assert formatting.number(1.25) == "1,2"
    assert formatting.duration(3.3) == f"3,3{formatting.THIN}s"
    moment = datetime(2026, 3, 1, 14, 5, 9, tzinfo=UTC)
    assert formatting.absolute_time(moment) == "01.03.2026 14:05:09 UTC"
    assert formatting.duration(90_000) == f"1{formatting.THIN}d 1{formatting.THIN}h"
    assert (
        schedule.describe("0 9,17 * * MON-FRI", "") == "von Montag bis Freitag um 09:00 und 17:00"
    )
    assert schedule.describe("0 9 * * MON", "") == "jeden Montag um 09:00"
    with formatting.in_english():
        assert formatting.number(1_234_567) == "1 234 567".replace(" ", formatting.THIN)
        assert formatting.grouped(1_234_567) == "1,234,567"
        assert formatting.absolute_time(moment) == "2026-03-01 14:05:09 UTC"
        assert formatting.duration(3.3) == f"3.3{formatting.THIN}s"
        assert schedule.describe("0 9 * * MON-FRI", "") == "every weekday at 09:00"
        assert translation.get_language() is None
    with translation.override("fr"):
        assert formatting.number(1_234_567) == "1\N{NO-BREAK SPACE}234\N{NO-BREAK SPACE}567"


@pytest.mark.usefixtures("in_german")
def test_the_buttons_of_a_finding_have_no_english_word() -> None:
    job = active("one", queue="mail", type="renamed.away")
    failure = Failure(type="unknown_job_type", message="no handler")
    fail.postpone(job.id, failure, delay=timedelta(seconds=30))
    page = root().get(f"{BASE}overview/").content.decode()
    assert "alle abbrechen" in page
    assert "all abbrechen" not in page

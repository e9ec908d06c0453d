"""The page of a job type: its figures, errors, queues and workers, and the links to it."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext

from django_ojs.admin.formatting import octave
from django_ojs.extensions.statistics import rollups
from django_ojs.extensions.statistics.models import Rollup
from django_ojs.handlers import job_types
from django_ojs.operations import fail
from django_ojs.spec.failure import Failure
from django_ojs.storage import database
from tests.admin.markup import HOSTILE, structure
from tests.admin.test_findings import plain
from tests.admin.users import VIEW, root, staff
from tests.factories import BOOM, WorkerFactory, active, hourly, push
from tests.model_factories import RollupFactory, histogram

pytestmark = [pytest.mark.django_db, pytest.mark.once]

ADMIN = "/admin/django_ojs/"
#: Statements of the page, those of session, user and savepoints included.
BUDGET = 45


@pytest.fixture(autouse=True)
def nothing_noted(db: None) -> None:
    rollups.flush()
    Rollup.objects.all().delete()


def address(type: str) -> str:
    return f"{ADMIN}job/type/?{urlencode({'type': type})}"


def page(client: Client, type: str) -> str:
    response = client.get(address(type))
    assert response.status_code == 200
    return re.sub(r"\s+", " ", unescape(response.content.decode()))


def ran(ago: timedelta, type: str = "mail.send", queue: str = "mail", **values: Any) -> None:
    took = histogram(1.5, values.get("completed", 0))
    RollupFactory(ago=ago, queue=queue, type=type, **({"waited": took, "ran": took} | values))


def periods(text: str) -> list[list[str]]:
    rows = re.findall(r'<tr><th scope="row">(Hour|Day|Week)</th>(.*?)</tr>', text)
    return [
        [name, *(plain(cell).strip() for cell in re.findall(r"<td[^>]*>(.*?)</td>", cells))]
        for name, cells in rows
    ]


@pytest.mark.both
@pytest.mark.both
def test_the_runs_of_an_hour_a_day_and_a_week_are_those_of_the_type_alone() -> None:
    ran(timedelta(minutes=5), completed=8, failed=3, lost=1)
    ran(timedelta(hours=5), completed=10)
    ran(timedelta(days=5), completed=8000, failed=20)
    ran(timedelta(days=8), completed=1000)
    ran(timedelta(minutes=5), type="other.job", completed=500, failed=500)
    hour, day, week = periods(page(root(), "mail.send"))
    assert hour[:4] == ["Hour", "11", "2and 1 lost with a worker", "20 %"]
    assert hour[4:] == ["1 s\N{EN DASH}2 s"] * 4
    assert day[:4] == ["Day", "21", "2and 1 lost with a worker", "10 %"]
    # Some failures are not none.
    assert week[:4] == ["Week", "8 041", "22and 1 lost with a worker", "<1 %"]


def test_a_type_without_runs_has_dashes_and_says_what_is_not_there() -> None:
    text = page(root(), "mail.send")
    assert periods(text)[0] == ["Hour", "0", "0", "—", *["—"] * 4]
    assert "Latest errors" not in text
    assert "No running worker reports a handler" in text


@pytest.mark.both
def test_the_latest_errors_are_those_of_the_type_for_those_who_may_see_them() -> None:
    failed = active(type="mail.send", retry=hourly(3))
    fail.fail(failed.id, Failure(type="SMTPError", message="a-secret"))
    other = active(type="other.job")
    fail.fail(other.id, BOOM)
    text = page(root(), "mail.send")
    assert "SMTPError" in text
    assert "a-secret" in text
    assert str(failed.id) in text
    assert str(other.id) not in text
    hidden = page(staff(*VIEW), "mail.send")
    assert "SMTPError" in hidden
    assert "a-secret" not in hidden
    with override_settings(OJS={"ADMIN_REDACT": ["message"]}):
        assert "a-secret" not in page(root("other"), "mail.send")


@pytest.mark.both
@pytest.mark.both
def test_equal_errors_are_one_line_with_a_count_at_the_beginning() -> None:
    for message in ("order 17 failed", "order 4 failed", "the disk is full"):
        fail.fail(active(type="mail.send").id, Failure(type="Boom", message=message))
    text = plain(page(root(), "mail.send"))
    assert text.index("Latest errors") < text.index("Failure rate")
    assert re.search(r"Boom ?order … failed ?Failed 2 .* ago", text)
    assert re.search(r"Boom ?the disk is full ?Failed 1 ", text)
    # Who may not see messages gets no more lines by them.
    hidden = plain(page(staff(*VIEW), "mail.send"))
    assert re.search(r"Boom ?Failed 3 ", hidden)


@pytest.mark.both
def test_workers_are_named_by_whether_they_have_a_handler() -> None:
    ran(timedelta(minutes=5), completed=1)
    WorkerFactory(id="new", queues=("mail",), job_types=("mail.send", "other.job"))
    WorkerFactory(id="old", queues=("mail",), job_types=("other.job",))
    WorkerFactory(id="silent", queues=("mail",))
    WorkerFactory(id="elsewhere", queues=("images",), job_types=("other.job",))
    text = plain(page(root(), "mail.send"))
    assert "Running workers with a handler: new." in text
    assert "without a handler, which postpone its jobs: old." in text
    assert "do not report their types: silent." in text
    assert "elsewhere" not in text


def test_the_page_says_whether_the_web_process_has_a_handler() -> None:
    assert "process has no handler" in page(root(), "mail.send")
    assert "process has a handler" in page(root("second"), job_types()[0])


def test_findings_about_the_type_are_on_its_page() -> None:
    ran(timedelta(minutes=5), completed=2, failed=18)
    ran(timedelta(minutes=5), type="other.job", failed=18)
    job = active("one", queue="mail", type="mail.send")
    fail.postpone(
        job.id,
        Failure(type="unknown_job_type", message="no handler"),
        delay=timedelta(seconds=30),
    )
    text = plain(page(root(), "mail.send"))
    assert "90 % of the runs of mail.send failed" in text.replace("\u202f", " ")
    assert "No handler knows the type mail.send: 1 job of mail waits." in text
    assert "other.job" not in text


def test_failing_types_dead_letters_jobs_and_searches_lead_to_the_page() -> None:
    ran(timedelta(minutes=5), type="test.job", failed=20)
    dead = active(retry=hourly(1, on_exhaustion="dead_letter"))
    fail.fail(dead.id, BOOM)
    client = root()
    for lists in ("overview/", "deadletterjob/", f"job/{dead.id}/change/", "job/?q=type:test.job"):
        assert f'href="{address("test.job")}"' in client.get(ADMIN + lists).content.decode(), lists
    assert "job/type/" not in client.get(f"{ADMIN}job/?q=type:test.*").content.decode()
    blind = staff("view_overview", name="blind")
    assert "job/type/" not in blind.get(f"{ADMIN}overview/").content.decode()
    assert blind.get(address("test.job")).status_code == 403


def test_the_page_leads_to_the_jobs_of_the_type() -> None:
    text = page(root(), "mail.send")
    assert "job/?q=type%3Amail.send" in text
    assert "job/?q=state%3Aretryable%2Cdiscarded+type%3Amail.send" in text


@pytest.mark.repeats
@pytest.mark.once
def test_the_name_of_a_type_changes_nothing_of_the_structure() -> None:
    client = root()
    # What cannot be the name of a type has no links to search for it.
    named = structure(page(client, "harmless")).tags
    unnamed = structure(page(client, "Not A Type")).tags
    for text in HOSTILE:
        read = structure(client.get(address(text)).content.decode())
        assert read.forbidden == [], text
        assert read.tags == (named if set(text) == {"x"} else unnamed), text


@pytest.mark.parametrize("query", ["", "?type=", "?type=%00"])
def test_an_address_without_a_type_leads_to_the_jobs(query: str) -> None:
    assert root().get(f"{ADMIN}job/type/{query}")["Location"] == f"{ADMIN}job/"


def test_the_page_takes_as_many_queries_for_many_runs_as_for_few() -> None:
    def number() -> int:
        with CaptureQueriesContext(database.connection()) as captured:
            assert client.get(address("test.job")).status_code == 200
        return len(captured)

    def more(n: int) -> None:
        ran(timedelta(minutes=n), type="test.job", queue=f"q{n}", completed=1)
        WorkerFactory(id=f"w{n}", queues=("mail",), job_types=("test.job",))
        fail.fail(active().id, BOOM)
        push()

    client = root()
    more(0)  # What has failed is looked for only if a run has.
    number()  # The numbers of the navigation are reused.
    few = number()
    for n in range(1, 12):
        more(n)
    assert number() == few <= BUDGET


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "—"),
        (0.0004, "0\N{EN DASH}1 ms"),
        (0.0015, "1 ms\N{EN DASH}2 ms"),
        (1.5, "1 s\N{EN DASH}2 s"),
        (90.0, "1 min 6 s\N{EN DASH}2 min 11 s"),
    ],
)
def test_a_running_time_is_shown_as_what_is_known_of_it(seconds: float | None, shown: str) -> None:
    assert octave(seconds).replace("\N{NARROW NO-BREAK SPACE}", " ") == shown

"""Level 2: jobs for later, cron jobs, and deadlines (ojs-conformance §2.3)."""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.factories import HOUR, age
from tests.http.api import Api
from tests.operations.cron.scenes import make_due

pytestmark = pytest.mark.django_db

api = Api()


@pytest.mark.requirement("L2-DEL-001", "L2-DEL-002")
def test_a_job_for_later_is_handed_out_when_it_is_due_and_not_before() -> None:
    job = api.push(scheduled_at="+PT30M")
    assert job["state"] == "scheduled"
    assert api.fetch() == []
    age(UUID(job["id"]), HOUR)
    assert [found["id"] for found in api.fetch()] == [job["id"]]


@pytest.mark.requirement("L2-TTL-001", "L2-TTL-002", "CORE-5.2-17")
def test_a_job_whose_deadline_passed_is_discarded_and_never_handed_out() -> None:
    key = api.push(expires_at="+PT30M")["id"]
    age(UUID(key), HOUR)
    assert api.fetch() == []
    assert api.info(key)["state"] == "discarded"
    assert api.info(key)["attempt"] == 0


CRON = {"name": "report", "cron": "30 9 * * MON-FRI", "type": "report.make", "args": [1]}


@pytest.mark.requirement("L2-CRON-001")
def test_a_cron_expression_makes_jobs() -> None:
    api.post("cron", CRON).ok(201)
    assert api.fetch() == []
    make_due("report")
    (job,) = api.fetch()
    assert (job["type"], job["args"], job["meta"]["cron_name"]) == ("report.make", [1], "report")


@pytest.mark.requirement("L2-CRON-002")
def test_a_cron_expression_is_one_of_its_timezone() -> None:
    shown = api.post("cron", CRON | {"timezone": "Asia/Kolkata"}).ok(201)["cron_job"]
    assert shown["next_run_at"].endswith("T04:00:00.000Z")


@pytest.mark.requirement("L2-CRON-003")
def test_runs_of_a_cron_job_do_not_overlap() -> None:
    api.post("cron", CRON).ok(201)
    make_due("report")
    (job,) = api.fetch()
    make_due("report")
    assert api.fetch() == []
    api.post("workers/ack", {"job_id": job["id"]}).ok()
    make_due("report")
    assert len(api.fetch()) == 1


@pytest.mark.requirement("L2-TZ-001")
@pytest.mark.parametrize("name", ["EST", "+05:00", "Europe/Nowhere"])
def test_a_timezone_is_one_of_the_iana_database(name: str) -> None:
    api.post("cron", CRON | {"timezone": "Europe/Paris"}).ok(201)
    api.post("cron", CRON | {"timezone": name}).error(400, "invalid_request", field="timezone")

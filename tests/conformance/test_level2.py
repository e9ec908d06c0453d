"""Of Level 2, what works today: jobs for later, and deadlines (ojs-conformance §2.3)."""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.factories import HOUR, age
from tests.http.api import Api

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

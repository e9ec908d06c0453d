"""The permission to see payloads, and redaction."""

from __future__ import annotations

import pytest
from django.test import override_settings

from django_ojs.operations.jobs.redaction import HIDDEN, redacted
from tests.admin.test_pages import BASE
from tests.admin.users import staff
from tests.model_factories import EventFactory

SECRET = "the secret of a job"


def test_named_members_are_hidden_at_any_depth_and_in_any_case() -> None:
    value = [{"Password": "x", "user": {"password": {"a": 1}, "name": "ann"}}, "password", 3]
    with override_settings(OJS={"ADMIN_REDACT": ["passWord"]}):
        assert redacted(value) == [
            {"Password": HIDDEN, "user": {"password": HIDDEN, "name": "ann"}},
            "password",
            3,
        ]
    assert redacted(value) == value


def test_a_star_hides_all_of_it() -> None:
    with override_settings(OJS={"ADMIN_REDACT": ["*"]}):
        assert redacted({"a": 1}) == HIDDEN


def test_a_value_deeper_than_any_is_cut_and_no_error() -> None:
    value: list[object] = []
    for _ in range(100_000):
        value = [value]
    with override_settings(OJS={"ADMIN_REDACT": ["a"]}):
        assert HIDDEN in str(redacted(value))


@pytest.mark.once
@pytest.mark.django_db
@pytest.mark.parametrize("name", ["error", "last_error", "args", "result", "something"])
def test_events_show_payloads_to_those_who_may_see_them(name: str) -> None:
    EventFactory(type="job.failed", data={name: {"message": SECRET}})
    sees = staff("view_event", "view_payload_job", name="sees").get(f"{BASE}event/")
    assert SECRET in sees.content.decode()
    blind = staff("view_event", name="blind")
    assert SECRET not in blind.get(f"{BASE}event/").content.decode()
    with override_settings(OJS={"ADMIN_REDACT": ["message"]}):
        hidden = staff("view_event", "view_payload_job", name="other").get(f"{BASE}event/")
        assert SECRET not in hidden.content.decode()


@pytest.mark.once
@pytest.mark.django_db
def test_events_are_listed_when_all_payloads_are_redacted() -> None:
    EventFactory(type="job.failed", data={"error": {"message": SECRET}, "worker_id": "web-1"})
    with override_settings(OJS={"ADMIN_REDACT": ["*"]}):
        page = staff("view_event", "view_payload_job").get(f"{BASE}event/").content.decode()
    assert "web-1" in page
    assert SECRET not in page

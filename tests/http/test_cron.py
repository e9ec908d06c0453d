"""Cron jobs over HTTP: both forms of a registration, upsert, enable and disable, removal."""

from __future__ import annotations

from typing import Any

import pytest

from django_ojs.extensions.cron import operations as cron
from django_ojs.extensions.cron.models import CronJob
from tests.factories import jobs
from tests.http.api import Api, make_key
from tests.operations.cron.scenes import register

pytestmark = pytest.mark.django_db

FLAT: dict[str, Any] = {
    "name": "daily-report",
    "cron": "0 9 * * MON-FRI",
    "timezone": "Europe/Paris",
    "type": "report.generate",
    "args": [{"report": "daily"}],
    "meta": {"owner": "analytics"},
    "options": {"queue": "reports", "timeout": 300},
}
NESTED: dict[str, Any] = {
    "name": "daily-report",
    "expression": "0 9 * * MON-FRI",
    "timezone": "Europe/Paris",
    "overlap_policy": "cancel",
    "job_template": {
        "type": "report.generate",
        "args": [{"report": "daily"}],
        "options": {"queue": "reports"},
    },
}


@pytest.fixture
def api() -> Api:
    return Api(make_key("admin"))


def test_the_flat_form_is_registered(api: Api) -> None:
    response = api.post("cron", FLAT)

    shown = response.ok(201)["cron_job"]
    assert response["cron"] == shown
    assert response.headers["Location"] == "/ojs/v1/cron/daily-report"
    assert shown.items() >= FLAT.items()
    assert shown["expression"] == FLAT["cron"]
    assert shown["job_template"] == {key: FLAT[key] for key in ("type", "args", "meta", "options")}
    assert (shown["overlap_policy"], shown["enabled"], shown["status"]) == ("skip", True, "active")
    assert (shown["owner"], shown["description"], shown["run_count"]) == ("api", None, 0)
    assert shown["last_run_at"] is None
    assert shown["next_run_at"].endswith(":00:00.000Z")


def test_the_form_with_a_template_is_registered(api: Api) -> None:
    shown = api.post("cron", NESTED).ok(201)["cron"]

    assert shown["job_template"] == NESTED["job_template"]
    assert (shown["type"], shown["args"]) == ("report.generate", [{"report": "daily"}])
    assert (shown["cron"], shown["overlap_policy"]) == ("0 9 * * MON-FRI", "cancel_previous")
    assert CronJob.objects.get().queue == "reports"


def test_options_may_stand_at_the_top_and_arguments_may_be_left_out(api: Api) -> None:
    body = {"name": "n", "cron": "@daily", "type": "a", "queue": "top", "priority": 5}

    shown = api.post("cron", body).ok(201)["cron_job"]

    assert (shown["args"], shown["options"]) == ([], {"queue": "top", "priority": 5})


def test_the_jobs_have_the_attributes_of_the_template_that_are_not_known_here(api: Api) -> None:
    # Some are named like members of the cron job.
    unknown = {"colour": None, "name": "a", "cron": 1.0, "status": [True, {"é": 2**53 - 1}]}
    template = {"type": "a", "args": [], **unknown, "options": {"shade": 0}}

    shown = api.post("cron", {"name": "n", "cron": "@daily", "job_template": template}).ok(201)

    assert shown["cron"]["job_template"] == api.get("cron/n")["cron"]["job_template"] == template
    assert (shown["cron"]["name"], shown["cron"]["cron"]) == ("n", "@daily")
    job = api.info(str(cron.trigger("n", by="ann").id))
    assert job.items() >= {**unknown, "options": {"shade": 0}}.items()
    assert repr(job["cron"]) == "1.0"


@pytest.mark.requirement("CRON-06")
def test_what_the_server_sets_is_ignored(api: Api) -> None:
    system = {
        "last_run_at": "2020-01-01T00:00:00Z",
        "next_run_at": "2020-01-01T00:00:00Z",
        "run_count": 7,
        "created_at": "2020-01-01T00:00:00Z",
        "owner": "code",
    }

    shown = api.post("cron", FLAT | system).ok(201)["cron_job"]

    assert (shown["last_run_at"], shown["run_count"], shown["owner"]) == (None, 0, "api")
    assert not shown["next_run_at"].startswith("2020")
    assert not shown["created_at"].startswith("2020")


@pytest.mark.requirement("CRON-01", "CRON-26")
def test_a_second_registration_changes_the_first(api: Api) -> None:
    api.post("cron", FLAT).ok(201)
    api.ask("PATCH", "cron/daily-report", {"enabled": False}).ok()

    shown = api.post("cron", FLAT | {"cron": "@hourly", "options": None}).ok(200)["cron_job"]

    assert (shown["cron"], shown["options"], shown["enabled"]) == ("@hourly", {}, False)
    assert api.post("cron", FLAT | {"enabled": True}).ok(200)["cron_job"]["enabled"] is True
    assert CronJob.objects.count() == 1


@pytest.mark.once
@pytest.mark.requirement("CRON-02", "CRON-03", "CRON-04", "CRON-05", "CRON-13", "CRON-14")
@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"name": None}, "name", "is required"),
        ({"name": "Daily_Report"}, "name", "must consist of"),
        ({"name": 5}, "name", "must consist of"),
        ({"cron": None}, "cron", "is required"),
        ({"cron": ""}, "cron", "missing"),
        ({"cron": "60 * * * *"}, "cron", "minute: '60' is out of range"),
        ({"cron": "0 0 31 2 *"}, "cron", "never fire"),
        ({"cron": 5}, "cron", "must be a string"),
        ({"timezone": "EST"}, "timezone", "abbreviation"),
        ({"timezone": "+05:00"}, "timezone", "offset"),
        ({"timezone": ""}, "timezone", "not in the IANA database"),
        ({"type": None}, "type", "is required"),
        ({"type": "Not A Type"}, "type", "must"),
        ({"args": {"a": 1}}, "args", "must be an array"),
        ({"options": []}, "options", "must be an object"),
        ({"options": {"queue": "Not A Queue"}}, "queue", "must"),
        ({"options": {"scheduled_at": "2030-01-01T00:00:00Z"}}, "options.scheduled_at", "relative"),
        ({"overlap_policy": "sometimes"}, "overlap_policy", "must be one of skip, allow"),
        ({"enabled": "yes"}, "enabled", "must be a boolean"),
        ({"description": 5}, "description", "must be a string"),
        ({"job_template": []}, "job_template", "must be an object"),
    ],
)
def test_what_cannot_be_is_rejected_with_its_field(
    api: Api, change: dict[str, Any], field: str, message: str
) -> None:
    error = api.post("cron", FLAT | change).body["error"]

    assert (error["details"]["field"], error["retryable"]) == (field, False)
    assert message in error["message"]
    assert not CronJob.objects.exists()


@pytest.mark.requirement("CRON-11")
def test_an_invalid_expression_is_400_invalid_request(api: Api) -> None:
    # ojs-cron §3.5
    api.post("cron", FLAT | {"cron": "*/0 * * * *"}).error(400, "invalid_request", field="cron")


def test_one_is_read_under_both_names(api: Api) -> None:
    stored = api.post("cron", FLAT).ok(201)["cron_job"]

    assert api.get("cron/daily-report").ok() == {"cron_job": stored, "cron": stored}


@pytest.mark.once
@pytest.mark.requirement("CRON-27")
@pytest.mark.parametrize("name", ["missing", "Not-A-Name", "%00", "x" * 300])
@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
def test_an_unknown_name_is_404(api: Api, method: str, name: str) -> None:
    body = {"enabled": False} if method == "PATCH" else None

    error = api.ask(method, f"cron/{name}", body).error(404, "not_found")

    assert error["details"]["resource_type"] == "cron_job"


@pytest.mark.both
@pytest.mark.requirement("CRON-S06")
def test_they_are_listed_by_name_in_pages_and_by_enabled(api: Api) -> None:
    for name in ("c", "a", "b"):
        api.post("cron", FLAT | {"name": name, "enabled": name != "b"}).ok(201)

    first = api.get("cron?limit=2").ok()
    rest = api.get(f"cron?limit=2&cursor={first['pagination']['next_cursor']}").ok()

    assert [job["name"] for job in first["cron_jobs"]] == ["a", "b"]
    assert first["crons"] == first["cron_jobs"]
    assert (first["count"], first["pagination"]["total"]) == (2, 3)
    assert [job["name"] for job in rest["cron_jobs"]] == ["c"]
    assert rest["pagination"]["has_more"] is False
    assert [job["name"] for job in api.get("cron?enabled=false").ok()["crons"]] == ["b"]
    assert api.get("cron?enabled=true").ok()["count"] == 2
    api.get("cron?enabled=maybe").error(400, "invalid_request", field="enabled")


@pytest.mark.requirement("CRON-28")
def test_a_disabled_one_has_no_next_run(api: Api) -> None:
    api.post("cron", FLAT).ok(201)

    shown = api.ask("PATCH", "cron/daily-report", {"enabled": False}).ok()["cron_job"]
    assert (shown["enabled"], shown["status"], shown["next_run_at"]) == (False, "disabled", None)

    shown = api.ask("PATCH", "cron/daily-report", {"enabled": True}).ok()["cron"]
    assert (shown["enabled"], shown["status"]) == (True, "active")
    assert shown["next_run_at"] is not None


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "enabled"),
        ({"enabled": "no"}, "enabled"),
        ({"enabled": False, "cron": "@hourly"}, "cron"),
    ],
)
def test_patch_changes_enabled_and_nothing_else(api: Api, body: Any, field: str) -> None:
    api.post("cron", FLAT).ok(201)

    api.ask("PATCH", "cron/daily-report", body).error(400, "invalid_request", field=field)

    assert CronJob.objects.get().enabled


def test_a_removed_one_leaves_its_jobs(api: Api) -> None:
    stored = api.post("cron", FLAT).ok(201)["cron_job"]
    cron.trigger("daily-report", by="ann")

    removed = api.delete("cron/daily-report").ok()

    assert (removed["deleted"], removed["name"]) == (True, "daily-report")
    assert removed["cron"]["created_at"] == stored["created_at"]
    assert jobs().get().meta["cron_name"] == "daily-report"
    api.get("cron/daily-report").error(404, "not_found")


def test_one_that_is_declared_in_code_can_only_be_enabled_and_disabled(api: Api) -> None:
    register("in-code", "@daily", in_code=True)

    for response in (
        api.post("cron", FLAT | {"name": "in-code"}),
        api.delete("cron/in-code"),
    ):
        error = response.error(409, "conflict", owner="code")
        assert "declared in code (shop.jobs.nightly)" in error["message"]
        assert "disabled and enabled here" in error["hint"]
    assert api.ask("PATCH", "cron/in-code", {"enabled": False}).ok()["cron"]["owner"] == "code"
    assert CronJob.objects.get().expression == "@daily"


class TestLimitedKeys:
    """Keys for the queue "mine" meet a cron job in the queue "reports"."""

    @pytest.fixture
    def limited(self, api: Api, settings: Any) -> Api:
        keys = "django_ojs.http.authentication.ApiKeyAuthentication"
        settings.OJS = {"HTTP_AUTHENTICATION": [keys]}
        api.post("cron", FLAT).ok(201)
        return Api(make_key("admin", queues=("mine",)))

    def test_a_name_in_another_queue_cannot_be_taken_over(self, limited: Api) -> None:
        limited.post("cron", FLAT | {"options": {"queue": "mine"}}).error(403, "PERMISSION_DENIED")
        assert CronJob.objects.get().queue == "reports"

    def test_it_registers_and_lists_in_its_own_queue(self, limited: Api) -> None:
        limited.post("cron", FLAT | {"name": "own", "options": {"queue": "mine"}}).ok(201)
        listed = limited.get("cron").ok()
        assert [job["name"] for job in listed["cron_jobs"]] == ["own"]
        assert listed["pagination"]["total"] == 1

"""PUSH, INFO, CANCEL and ACTIVATE of one job, over HTTP."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from django_ojs.spec import ids
from tests.cases import together
from tests.factories import MINUTE, age, in_state
from tests.http.api import NOBODY, Api, stored

pytestmark = pytest.mark.django_db

TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z").fullmatch
api = Api()


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


class TestPush:
    @pytest.mark.requirement("CORE-5.2-1")
    def test_the_smallest_job_comes_back_complete(self) -> None:
        response = api.post("jobs", {"type": "email.send", "args": ["a", 1, None, {"b": [True]}]})
        job = response.ok(201)["job"]
        assert (
            job.items()
            >= {
                "specversion": "1.0.0-rc.1",
                "type": "email.send",
                "queue": "default",
                "args": ["a", 1, None, {"b": [True]}],
                "meta": {},
                "state": "available",
                "attempt": 0,
                "max_attempts": 3,
                "priority": 0,
            }.items()
        )
        assert ids.is_uuid7(UUID(job["id"]))
        assert TIMESTAMP(job["created_at"])
        assert TIMESTAMP(job["enqueued_at"])
        assert response.headers["Location"] == f"/ojs/v1/jobs/{job['id']}"
        assert response.body.keys() == {"job"}

    def test_the_location_leads_to_the_job_as_it_was_returned(self) -> None:
        response = api.post("jobs", {"type": "a", "args": [1], "tags": ["x"], "priority": 7})
        assert api.get(response.headers["Location"]).ok() == response.body

    def test_absent_optional_fields_are_left_out(self) -> None:
        assert api.push().keys() == {
            *("specversion", "id", "type", "queue", "args", "meta", "state"),
            *("attempt", "max_attempts", "priority", "created_at", "enqueued_at"),
        }

    def test_null_equals_absent(self) -> None:
        names = (
            *("id", "queue", "priority", "timeout_ms", "timeout", "scheduled_at", "delay_until"),
            *("expires_at", "retry", "retry_policy", "unique", "tags", "visibility_timeout_ms"),
            *("pending", "metadata", "meta", "schema", "specversion", "options", "rate_limit"),
        )
        assert api.push(**dict.fromkeys(names)).keys() == api.push().keys()

    @pytest.mark.parametrize("at", ["top", "options"])
    def test_options_are_read_from_both_places(self, at: str) -> None:
        options: dict[str, Any] = {
            "queue": "email",
            "priority": -100,
            "timeout_ms": 5_000,
            "visibility_timeout_ms": 60_000,
            "retry": {"max_attempts": 5},
            "tags": ["a", "b"],
            "metadata": {"trace_id": "t"},
            "pending": True,
            "schema": "urn:ojs:schema:email.send:v1",
        }
        job = api.push(**(options if at == "top" else {"options": options}))
        assert (
            job.items()
            >= {
                "queue": "email",
                "priority": -100,
                "timeout_ms": 5_000,
                "visibility_timeout_ms": 60_000,
                "max_attempts": 5,
                "tags": ["a", "b"],
                "meta": {"trace_id": "t"},
                "state": "pending",
                "schema": "urn:ojs:schema:email.send:v1",
            }.items()
        )
        assert "options" not in job

    @together(
        ("top", "options", "shown"),
        [
            ({"queue": "a"}, {"queue": "b"}, {"queue": "b"}),
            ({"priority": 1}, {"priority": 2}, {"priority": 2}),
            ({"timeout_ms": 9_000}, {"timeout": 5}, {"timeout_ms": 5_000}),
            ({"timeout": 9}, {"timeout_ms": 5_000}, {"timeout_ms": 5_000}),
            (
                {"retry": {"max_attempts": 9}},
                {"retry_policy": {"max_attempts": 2}},
                {"max_attempts": 2},
            ),
            ({"queue": "a"}, {"queue": None}, {"queue": "a"}),
            ({"meta": {"a": 1, "b": 1}}, {"metadata": {"b": 2}}, {"meta": {"a": 1, "b": 2}}),
        ],
        undo=True,
    )
    def test_options_win(
        self, top: dict[str, Any], options: dict[str, Any], shown: dict[str, Any]
    ) -> None:
        assert api.push(**top, options=options).items() >= shown.items()

    @pytest.mark.requirement("CORE-5.5-4", "CORE-5.5-5")
    def test_unknown_fields_come_back_at_the_top_level(self) -> None:
        extra = {"x-team": "billing", "future": {"deep": [1, {"er": None}]}, "zero": 0}
        job = api.push(**extra)
        assert job.items() >= extra.items()
        assert api.info(job["id"]).items() >= extra.items()
        assert api.fetch()[0].items() >= extra.items()

    @pytest.mark.parametrize("place", ["top", "options"])
    def test_unknown_fields_keep_their_types(self, place: str) -> None:
        values = [1, 1.0, True, None, 0, 0.0, False, 1e22, 2**53 - 1, "é☃\u2028", [], {}]
        extra = {f"%s {number}": value for number, value in enumerate(values)}
        sent = extra if place == "top" else {"options": extra}
        alike = [{"type": "test.job", "args": [number], **sent} for number in range(3)]
        stored = api.post("jobs/batch", {"jobs": [*alike, alike[0] | {"colour": 1}]}).ok(201)
        shown = [api.push(**sent), *stored["jobs"]]
        for job in [*shown, *(api.info(job["id"]) for job in shown), *api.fetch(count=9)]:
            found = job if place == "top" else job["options"]
            # 1, 1.0 and True are equal.
            assert repr({name: found[name] for name in extra}) == repr(extra)

    @pytest.mark.requirement("CORE-5.3-1")
    def test_system_attributes_of_a_client_are_ignored(self) -> None:
        job = api.push(
            state="completed",
            attempt=9,
            created_at="2001-01-01T00:00:00Z",
            completed_at="2001-01-01T00:00:00Z",
            result={"forged": True},
            error={"type": "x"},
            errors=[1],
            progress=0.5,
            workflow_id="w",
        )
        assert (job["state"], job["attempt"]) == ("available", 0)
        assert not job.keys() & {"completed_at", "result", "error", "errors", "progress"}
        assert not job["created_at"].startswith("2001")

    @pytest.mark.requirement("CORE-5.1-2")
    @pytest.mark.parametrize("version", ["1.0", "1.0.0-rc.1"])
    def test_the_specversion_comes_back_as_it_was_sent(self, version: str) -> None:
        assert api.push(specversion=version)["specversion"] == version

    @pytest.mark.requirement("CORE-5.1-2")
    def test_another_specversion_is_unsupported(self) -> None:
        response = api.post("jobs", {"type": "a", "args": [], "specversion": "2.0"})
        response.error(422, "unsupported")

    @pytest.mark.requirement("CORE-5.5-3")
    def test_a_clients_own_id_is_kept_and_a_repeated_one_is_a_duplicate(self) -> None:
        own = str(ids.uuid7())
        assert api.push(id=own)["id"] == own
        again = api.post("jobs", {"id": own, "type": "b", "args": []})
        again.error(409, "duplicate", existing_job_id=own)
        assert (stored(), api.info(own)["type"]) == (1, "test.job")

    @pytest.mark.requirement("CORE-5.1-3")
    @pytest.mark.parametrize(
        "bad", ["", "x", NOBODY.upper(), "0" * 32, "6ba7b810-9dad-41d1-80b4-00c04fd430c8"]
    )
    def test_an_id_that_is_no_lowercase_uuid7_is_rejected(self, bad: str) -> None:
        error = api.post("jobs", {"id": bad, "type": "a", "args": []}).error(400, "invalid_request")
        assert "id" in error["message"]

    @pytest.mark.requirement("CORE-5.1-1")
    @pytest.mark.parametrize("name", ["type", "args"])
    def test_what_is_required_is_named_when_it_is_missing(self, name: str) -> None:
        body = {"type": "a", "args": []}
        del body[name]
        assert api.post("jobs", body).error(400, "invalid_request")["message"].startswith(name)

    def test_a_bad_retry_policy_is_422_and_names_the_field(self) -> None:
        response = api.post("jobs", {"type": "a", "args": [], "retry": {"max_attempts": -1}})
        error = response.error(422, "invalid_request")
        assert error["type"] == "validation_error"
        assert "retry.max_attempts" in error["message"]

    @pytest.mark.parametrize(
        ("value", "milliseconds"),
        [("PT1S", 1_000), ("1s", 1_000), ("300s", 300_000), (300, 300_000), ("PT1M30S", 90_000)],
    )
    def test_a_timeout_is_read_in_every_form(self, value: Any, milliseconds: int) -> None:
        assert api.push(timeout=value)["timeout_ms"] == milliseconds

    def test_a_duration_goes_out_as_iso_8601(self) -> None:
        retry = api.push(retry={"initial_interval": "2s", "max_interval_ms": 90_000})["retry"]
        assert (retry["initial_interval"], retry["max_interval"]) == ("PT2S", "PT1M30S")

    @pytest.mark.parametrize("name", ["scheduled_at", "delay_until"])
    def test_an_absolute_time_comes_back_as_it_was_sent(self, name: str) -> None:
        sent = "2099-01-31T09:30:00+02:00"
        job = api.push(**{name: sent})
        assert (job["state"], job["scheduled_at"]) == ("scheduled", sent)
        assert api.info(job["id"])["scheduled_at"] == sent
        assert "enqueued_at" not in job

    def test_a_relative_time_is_returned_as_an_absolute_one(self) -> None:
        job = api.push(scheduled_at="+PT2H", expires_at="+PT3H")
        apart = moment(job["expires_at"]) - moment(job["scheduled_at"])
        assert apart == timedelta(hours=1)
        away = moment(job["scheduled_at"]) - moment(job["created_at"])
        assert abs(away - timedelta(hours=2)) < timedelta(minutes=1)
        assert TIMESTAMP(job["scheduled_at"])
        assert api.info(job["id"]) == job

    def test_a_time_in_the_past_is_due_at_once(self) -> None:
        assert api.push(scheduled_at="2001-01-01T00:00:00Z")["state"] == "available"

    @pytest.mark.once
    @pytest.mark.requirement("CORE-5.2-13", "CORE-5.2-16", "CORE-5.5-2")
    @together("bad", ["2099-01-31T09:30:00", "tomorrow", 1, True, "PT2S", "+PT", {}], undo=True)
    @together("name", ["scheduled_at", "expires_at"], undo=True)
    def test_a_time_without_an_offset_or_sense_is_rejected(self, name: str, bad: Any) -> None:
        error = api.post("jobs", {"type": "a", "args": [], name: bad}).error(400, "invalid_request")
        assert name in error["message"]
        assert stored() == 0

    @pytest.mark.requirement("CORE-5.2-6")
    @together("bad", [101, -101, 1.0, True, "HIGH", [1]], undo=True)
    def test_a_priority_outside_its_range_is_rejected(self, bad: Any) -> None:
        error = api.post("jobs", {"type": "a", "args": [], "priority": bad})
        assert "priority" in error.error(400, "invalid_request")["message"]

    @pytest.mark.requirement("CORE-5.1-5")
    @pytest.mark.parametrize("good", ["a", "a.b", "email.send-now", "a_1.b-2", "a" * 255])
    def test_a_good_type_is_stored(self, good: str) -> None:
        assert api.push(type=good)["type"] == good

    @pytest.mark.once
    @pytest.mark.requirement("CORE-5.1-4", "CORE-5.1-5")
    @together("bad", ["", "A", "1a", "a..b", ".a", "a.", "a b", "a.1", 1, ["a"]], undo=True)
    def test_a_bad_type_is_rejected(self, bad: Any) -> None:
        api.post("jobs", {"type": bad, "args": []}).error(400, "invalid_request")

    @pytest.mark.requirement("CORE-5.1-6", "CORE-5.1-7")
    @pytest.mark.parametrize("good", ["a", "0", "a.b-c", "9." + "x" * 253])
    def test_a_good_queue_is_used(self, good: str) -> None:
        assert api.push(queue=good)["queue"] == good

    @pytest.mark.once
    @pytest.mark.requirement("CORE-5.1-6")
    @together("bad", ["", "A", "-a", ".a", "a_b", "a b", "ä", 1, ["a"]], undo=True)
    def test_a_bad_queue_is_rejected(self, bad: Any) -> None:
        api.post("jobs", {"type": "a", "args": [], "queue": bad}).error(400, "invalid_request")

    @pytest.mark.requirement("PL-003", "PL-004", "CORE-5.1-7")
    @pytest.mark.parametrize(
        ("field", "code", "kind"),
        [
            ("type", "JOB_TYPE_TOO_LONG", "JobTypeTooLong"),
            ("queue", "QUEUE_NAME_TOO_LONG", "QueueNameTooLong"),
        ],
    )
    def test_a_name_over_255_bytes_has_a_code_of_its_own(
        self, field: str, code: str, kind: str
    ) -> None:
        response = api.post("jobs", {"type": "a", "args": []} | {field: "a" * 256})
        assert response.error(400, code)["type"] == kind


class TestInfo:
    def test_a_completed_job_shows_its_result_and_times(self) -> None:
        job = api.info(str(in_state("completed").pk))
        assert job["result"] == {"done": True}
        assert TIMESTAMP(job["started_at"])
        assert TIMESTAMP(job["completed_at"])

    @pytest.mark.both
    def test_a_failed_job_shows_its_error_its_history_and_its_next_attempt(self) -> None:
        job = api.info(str(in_state("retryable").pk))
        assert job["error"]["type"] == "Boom"
        assert [entry["type"] for entry in job["errors"]] == ["Boom"]
        assert TIMESTAMP(job["next_attempt_at"])

    @pytest.mark.requirement("CORE-5.3-7")
    def test_completed_at_is_there_after_a_failing_discard_and_not_after_a_cancel(self) -> None:
        assert "completed_at" in api.info(str(in_state("discarded").pk))
        cancelled = api.info(str(in_state("cancelled").pk))
        assert "cancelled_at" in cancelled
        assert "completed_at" not in cancelled

    @pytest.mark.requirement("CORE-7.7-2")
    @together(
        "key", [NOBODY, "x", "%00", "..", "%ff", "a%0Ab", "0" * 400, "%F0%9F%90%8D"], undo=True
    )
    def test_what_is_no_job_is_404_with_a_hint(self, key: str) -> None:
        error = api.get(f"jobs/{key}").error(404, "not_found")
        assert key not in error["message"] or key == ".."


class TestCancel:
    def test_what_is_no_job_is_not_found(self) -> None:
        api.delete(f"jobs/{ids.uuid7()}").error(404, "not_found")
        api.post(f"jobs/{ids.uuid7()}/cancel").error(404, "not_found")


class TestActivate:
    def test_a_pending_job_becomes_available(self) -> None:
        key = api.push(pending=True)["id"]
        assert api.fetch() == []
        job = api.post(f"jobs/{key}/activate").ok()["job"]
        assert (job["id"], job["state"], job["previous_state"]) == (key, "available", "pending")
        assert TIMESTAMP(job["activated_at"])
        assert [found["id"] for found in api.fetch()] == [key]

    @pytest.mark.parametrize(
        "values",
        [
            {},
            {"body": b""},
            {"body": {}},
            {"body": b"", "content_type": "text/plain"},
            {"body": b"", "content_type": ""},
        ],
    )
    def test_it_needs_neither_body_nor_content_type(self, values: dict[str, Any]) -> None:
        key = api.push(pending=True)["id"]
        assert api.post(f"jobs/{key}/activate", **values).ok()["job"]["state"] == "available"

    def test_what_is_no_job_is_not_found(self) -> None:
        api.post(f"jobs/{ids.uuid7()}/activate").error(404, "not_found")
        api.post("jobs/x/activate").error(404, "not_found")


def test_a_job_that_is_due_can_be_fetched_and_one_that_expired_cannot() -> None:
    due, late = api.push(scheduled_at="+PT30S"), api.push(expires_at="+PT30S")
    age([UUID(due["id"]), UUID(late["id"])], MINUTE)
    assert [job["id"] for job in api.fetch(count=9)] == [due["id"]]
    gone = api.info(late["id"])
    assert (gone["state"], "completed_at" in gone) == ("discarded", False)


def test_times_are_utc_with_milliseconds() -> None:
    job = api.push()
    assert abs(moment(job["created_at"]) - datetime.now(UTC)) < timedelta(minutes=1)

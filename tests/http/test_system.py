"""Manifest, health, readiness. What happens without a database is in test_problems."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from django_ojs.http import readiness
from django_ojs.models import Job
from django_ojs.version import VERSION
from tests.databases import KIND
from tests.http.api import Api
from tests.worker.waiting import BOUND

pytestmark = pytest.mark.django_db

api = Api()


class TestManifest:
    def test_it_says_what_is_served(self) -> None:
        body = api.get("/ojs/manifest").ok()
        assert body["specversion"] == body["ojs_version"] == "1.0"
        assert (
            body["implementation"].items()
            >= {"name": "django-ojs", "version": VERSION, "language": "python"}.items()
        )
        assert body["conformance_tier"] == "runtime"
        assert body["protocols"] == ["http"]
        assert body["backend"] == {"postgresql": "postgres"}.get(KIND, KIND)
        assert all(type(value) is bool for value in body["capabilities"].values())
        assert body["endpoints"] == {
            "base_url": "http://testserver/ojs/v1",
            "manifest": "/ojs/manifest",
            "health": "/ojs/v1/health",
        }

    def test_its_endpoints_exist(self) -> None:
        ends = api.get("/ojs/manifest").ok()["endpoints"]
        api.get(ends["manifest"]).ok()
        api.get(ends["health"]).ok()
        api.get(ends["base_url"].removeprefix("http://testserver") + "/health").ok()

    def test_under_a_prefix_it_says_where_it_is(self) -> None:
        ends = api.get("/ojs/manifest", SCRIPT_NAME="/jobs").ok()["endpoints"]
        assert ends["base_url"] == "http://testserver/jobs/ojs/v1"
        assert ends["manifest"] == "/jobs/ojs/manifest"
        assert ends["health"] == "/jobs/ojs/v1/health"

    def test_a_host_that_the_standard_library_does_not_parse_is_no_error(self) -> None:
        # Django accepts it where ALLOWED_HOSTS is ["*"].
        ends = api.get("/ojs/manifest", HTTP_HOST="[e:.]").ok()["endpoints"]
        assert ends["manifest"] == "/ojs/manifest"

    @pytest.mark.requirement("PL-005")
    def test_its_limits_are_those_of_the_settings(self, settings: Any) -> None:
        settings.OJS = settings.OJS | {
            "MAX_ENVELOPE_BYTES": 2 * 2**20,
            "MAX_META_BYTES": 1_000,
            "MAX_QUEUE_NAME_BYTES": 100,
            "MAX_JOB_TYPE_BYTES": 90,
            "HTTP_MAX_BODY_BYTES": 3 * 2**20,
        }
        body = api.get("/ojs/manifest").ok()
        assert body["extensions"]["payload_limits"] == {
            "max_envelope_bytes": 2 * 2**20,
            "max_meta_bytes": 1_000,
            "max_queue_name_bytes": 100,
            "max_job_type_bytes": 90,
            "supported_compression": ["gzip", "zstd"],
            "external_references": True,
            "chunking": False,
            "per_queue_limits": True,
        }
        assert body["limits"] == {
            "max_job_size_bytes": 2 * 2**20,
            "max_meta_size_bytes": 1_000,
            "max_queue_name_length": 100,
            "max_type_length": 90,
            "max_envelope_bytes": 2 * 2**20,
            "max_metadata_bytes": 1_000,
            "max_queue_name_bytes": 100,
            "max_job_type_bytes": 90,
            "max_batch_size": 10_000,
            "max_body_bytes": 3 * 2**20,
        }

    def test_a_host_that_is_not_allowed_is_400(self, settings: Any) -> None:
        settings.ALLOWED_HOSTS = ["jobs.example.com"]
        response = api.get("/ojs/manifest", headers={"Host": "evil.example"})
        response.error(400, "invalid_request")
        assert b"evil" not in response.raw.content


class TestHealth:
    @pytest.fixture(autouse=True)
    def _time_to_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Not less than a second, which a busy machine may need."""
        monkeypatch.setattr(readiness, "ANSWER_TIMEOUT", BOUND)

    @pytest.mark.parametrize(("path", "status"), [("health", "ok"), ("ready", "ready")])
    def test_all_is_well(self, path: str, status: str) -> None:
        body = api.get(path).ok()
        assert (body["status"], body["version"]) == (status, "1.0")
        assert isinstance(body["uptime_seconds"], int)
        assert body["backend"].keys() == {"type", "status", "latency_ms"}
        assert body["backend"]["status"] == "connected"

    @pytest.mark.both
    def test_a_server_whose_tables_are_not_migrated_is_not_ready(
        self, monkeypatch: pytest.MonkeyPatch, transactional_db: None
    ) -> None:
        monkeypatch.setattr(Job._meta, "db_table", "ojs_not_yet")
        body = api.get("ready").ok(503)
        assert body["status"] == "degraded"
        api.get("health").ok()

    def test_nobody_needs_to_be_known(self, settings: Any) -> None:
        settings.OJS = {
            "HTTP_AUTHENTICATION": ["django_ojs.http.authentication.ApiKeyAuthentication"]
        }
        wrong = Api("ojs_wrong")
        for path in ("/ojs/manifest", "health", "ready"):
            api.get(path).ok()
            wrong.get(path).ok()


def test_a_health_check_asks_one_question(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1):
        api.get("health").ok()
    assert connection.is_usable()

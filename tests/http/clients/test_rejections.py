"""What a client learns from a rejection: that a feature, or a resource, is not there."""

from __future__ import annotations

import pytest
from pytest_django.live_server_helper import LiveServer

from tests.http.clients.wire import Wire

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]

ID = "01a1fc00-0000-7000-8000-000000000001"


@pytest.fixture
def wire(live_server: LiveServer) -> Wire:
    return Wire(live_server.url)


class TestFeaturesThatAreNotServed:
    """http-binding §16.2 and §16.3: 422 `unsupported`, which a client does not take for a 404."""

    @pytest.mark.parametrize(
        ("feature", "method", "path"),
        [
            ("schemas", "GET", "schemas"),
            ("schemas", "POST", "schemas"),
            ("schemas", "DELETE", "schemas/urn:ojs:schema:email.send:v1"),
            ("bulk", "POST", "jobs/bulk"),
            ("bulk", "POST", "jobs/bulk/cancel"),
            ("bulk", "POST", "dead-letter/retry"),
            ("results", "POST", "jobs/results"),
            ("results", "GET", f"jobs/{ID}/result"),
            ("debug", "GET", f"debug/jobs/{ID}/traces/1"),
            ("websockets", "GET", "ws"),
            ("history_of_all_jobs", "GET", "history"),
            ("history_of_all_jobs", "DELETE", "history?before=2026-01-01T00:00:00Z"),
            ("history_of_all_jobs", "GET", "history/stats"),
            ("history_of_all_jobs", "GET", "history/purge-status/01"),
            ("history_of_all_jobs", "POST", f"history/rebuild?job_id={ID}"),
            ("queue_jobs", "GET", "queues/default/jobs"),
            ("pools", "PUT", "admin/pools/critical-workers"),
            ("schemas", "GET", "admin/schemas/email.send"),
            ("schemas", "PUT", "admin/schemas/email.send/2.0"),
            ("routing", "PUT", "admin/routing/email.send"),
            ("tenant_administration", "GET", "admin/tenants"),
            ("tenant_administration", "POST", "admin/tenants"),
            ("tenant_administration", "GET", "admin/tenants/acme"),
            ("tenant_administration", "PUT", "admin/tenants/acme/limits"),
            ("tenant_administration", "GET", "admin/tenants/acme/stats"),
            ("tenant_administration", "GET", "admin/tenants/acme/jobs"),
        ],
    )
    def test_each_is_422_unsupported(
        self, wire: Wire, feature: str, method: str, path: str
    ) -> None:
        body = {} if method in ("POST", "PUT", "PATCH") else None
        error = wire.send(method, f"/v1/{path}", body, 422)["error"]
        assert (error["code"], error["retryable"]) == ("unsupported", False)
        assert error["details"] == {"feature": feature}

    def test_what_is_served_beside_them_still_is(self, wire: Wire) -> None:
        key = wire.push()
        assert wire.send("GET", f"/v1/jobs/{key}/progress")["progress"] is None
        assert wire.send("GET", "/v1/dead-letter/stats")
        assert wire.send("GET", "/v1/queues/default/stats")
        for path in ("cronjobs", "jobs-bulk", "workflow", f"jobs/{key}/unheard-of", "admin/tenant"):
            wire.send("GET", f"/v1/{path}", None, 404)


@pytest.mark.parametrize(
    ("path", "kind", "key"),
    [
        (f"jobs/{ID}", "job", ID),
        ("jobs/nothing", "job", "nothing"),
        (f"jobs/{ID}/progress", "job", ID),
        (f"admin/jobs/{ID}", "job", ID),
        (f"dead-letter/{ID}", "dead_letter_job", ID),
        ("dead-letter/nothing", "dead_letter_job", "nothing"),
        ("queues/nothing", "queue", "nothing"),
        ("admin/workers/nothing", "worker", "nothing"),
        ("nothing", "path", "/ojs/v1/nothing"),
    ],
)
def test_a_404_names_what_is_missing(wire: Wire, path: str, kind: str, key: str) -> None:
    # http-binding §9.3 and §12.3.
    details = wire.send("GET", f"/v1/{path}", None, 404)["error"]["details"]
    assert (details["resource_type"], details["resource_id"]) == (kind, key)


def test_a_404_of_an_ack_names_the_job(wire: Wire) -> None:
    details = wire.send("POST", "/v1/workers/ack", {"job_id": ID}, 404)["error"]["details"]
    assert details == {"job_id": ID, "resource_type": "job", "resource_id": ID}


@pytest.mark.parametrize("path", ["jobs/%00", "jobs/%0A", f"jobs/{'x' * 300}", "%00"])
def test_a_404_repeats_nothing_that_a_response_cannot_hold(wire: Wire, path: str) -> None:
    assert "resource_id" not in wire.send("GET", f"/v1/{path}", None, 404)["error"]["details"]


def test_the_default_policy_is_configured_on_either_plane(wire: Wire) -> None:
    admin = wire.send("PUT", "/v1/admin/queues/_default/config", {"max_envelope_bytes": 100_000})
    assert (admin["name"], admin["config"]) == ("_default", {"max_envelope_bytes": 100_000})
    data = wire.send("GET", "/v1/queues/_default/config")
    assert data["config"] == admin["config"]


def test_the_manifest_has_a_homepage(wire: Wire) -> None:
    assert wire.send("GET", "/manifest")["implementation"]["homepage"].startswith("https://")

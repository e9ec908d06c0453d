"""The examples of the documents, sent as they stand: one scene for each document.

Requests are accepted or rejected as the document says, and responses have the fields that it shows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings
from django.test import override_settings

from django_ojs.extensions.cron import operations as cron
from tests.factories import HOUR, age
from tests.http.api import NOBODY, Api
from tests.operations.cron.scenes import make_due

pytestmark = pytest.mark.django_db

api = Api()

RETRY = {"max_attempts": 3, "initial_interval": "PT30S", "backoff_coefficient": 2.0}


def shows(found: Any, *names: str) -> None:
    """Check that an object has these fields."""
    assert set(names) <= found.keys(), set(names) - found.keys()


def has(found: Any, wanted: Any) -> None:
    """Check that an object has what another one has."""
    assert found.items() >= wanted.items(), (found, wanted)


def events(*types: str) -> list[Any]:
    found: list[Any] = api.get(f"events?types={','.join(types)}&limit=1000").ok()["events"]
    return found


@pytest.fixture(autouse=True)
def keep_all() -> Iterator[None]:
    with override_settings(OJS={**settings.OJS, "KEEP_EVENTS": ["*"]}):
        yield


DAILY = {
    "name": "daily-report",
    "cron": "0 9 * * *",
    "timezone": "America/New_York",
    "type": "report.generate",
    "args": [{"report": "daily_summary"}],
    "options": {"queue": "reports", "timeout": 300, "retry": RETRY},
    "overlap_policy": "skip",
    "enabled": True,
    "description": "A report",
}


def cron_jobs() -> Iterable[dict[str, Any]]:
    """Return those of §2.1 and §10."""
    yield DAILY
    yield DAILY | {
        "name": "weekday-morning-report",
        "cron": "0 9 * * MON-FRI",
        "options": {
            "queue": "reports",
            "timeout": 600,
            "retry": RETRY | {"max_interval": "PT10M"},
            "tags": ["reporting", "daily"],
        },
    }
    yield DAILY | {"name": "cache-cleanup", "cron": "@hourly", "timezone": "UTC", "args": []}
    yield DAILY | {
        "name": "external-data-sync",
        "cron": "*/30 * * * *",
        "overlap_policy": "enqueue",
        "options": {"meta": {"partner_id": "partner_001"}, "timeout": 900},
    }
    yield DAILY | {
        "name": "upstream-health-check",
        "cron": "@every 5m",
        "overlap_policy": "allow",
        "options": {"retry": {"max_attempts": 1}},
    }
    yield DAILY | {
        "name": "monthly-billing",
        "cron": "0 23 L * *",
        "timezone": "America/Chicago",
        "overlap_policy": "cancel_previous",
    }


@pytest.mark.requirement("CRON-EX", "CRON-20", "CRON-29", "CRON-30")
def test_cron() -> None:
    for wanted in cron_jobs():
        stored = api.post("cron", wanted).ok(201)["cron_job"]
        has(stored, wanted | {"last_run_at": None, "run_count": 0})
        shows(stored, "next_run_at", "created_at")
        assert api.post("cron", wanted).ok(200)["cron_job"]["run_count"] == 0
    listed = api.get("cron?enabled=true").ok()
    assert (len(listed["cron_jobs"]), listed["count"]) == (6, 6)
    # It fires, and does so again while the first run has not ended (§9).
    for _ in range(2):
        make_due("daily-report")
        cron.fire_due()
    (job,) = api.fetch("reports")
    shows(job["meta"], "cron_name", "cron_triggered_at")
    (triggered,), (skipped,) = events("cron.triggered"), events("cron.skipped")
    which = {"cron_name": "daily-report", "cron_expression": "0 9 * * *"}
    has(triggered["data"], which | {"timezone": "America/New_York", "job_id": job["id"]})
    has(triggered["data"], {"job_type": "report.generate", "run_count": 1})
    shows(triggered["data"], "scheduled_time", "actual_time")
    has(skipped["data"], which | {"reason": "overlap_skip", "active_job_id": job["id"]})
    shows(skipped["data"], "scheduled_time", "timezone")
    off = api.ask("PATCH", "cron/daily-report", {"enabled": False}).ok()["cron_job"]
    has(off, {"name": "daily-report", "enabled": False, "next_run_at": None})
    has(api.get("cron/daily-report").ok()["cron_job"], DAILY | {"enabled": False, "run_count": 1})
    has(api.delete("cron/daily-report").ok(), {"deleted": True, "name": "daily-report"})
    # Its jobs stay (§8.4).
    assert api.info(job["id"])["state"] == "active"
    for method in ("GET", "DELETE"):
        api.ask(method, "cron/daily-report").error(404, "not_found")


@pytest.mark.requirement("CRON-S07")
def test_a_day_that_some_months_lack_is_accepted_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for days, month, is_rare in (
        ("31", "*", True),
        ("15,30W", "*", True),
        ("31", "1,3,5", False),
        ("L", "*", False),
        ("1-31", "*", False),
        ("*/2", "*", False),
    ):
        wanted = DAILY | {"name": "month", "cron": f"0 9 {days} {month} *"}
        response = api.post("cron", wanted)
        assert response.status in (200, 201)
        assert ("warnings" in response.body) is is_rare, days
        assert bool(caplog.records) is is_rare
        caplog.clear()
    assert api.post("cron", DAILY | {"cron": "0 9 31 * *"}).ok(201)["warnings"] == [
        "Not every chosen month has the day 31, and it does not fire on another day instead. L is "
        "the last day of each month."
    ]


def step(type: str, *args: Any, **options: Any) -> dict[str, Any]:
    return {"type": type, "args": list(args), **({"options": options} if options else {})}


ORDER = [
    step("order.validate", {"order_id": "ord_123"}, queue="orders", retry={"max_attempts": 3}),
    step("payment.charge", queue="orders", timeout_ms=30_000, retry={"max_attempts": 1}),
    step("inventory.reserve", queue="orders"),
    step("notification.send", queue="orders"),
]
MAILS = [step("email.send", f"user{n}@example.com", "welcome", queue="mail") for n in (1, 2, 3)]
FAILED = {"type": "Boom", "message": "it broke", "retryable": False}


def end(job: Any, result: Any = None, *, failed: bool = False) -> None:
    body = {"job_id": job["id"]}
    if failed:
        api.post("workers/nack", {**body, "error": FAILED}).ok()
    else:
        api.post("workers/ack", {**body, "result": result}).ok()


@pytest.mark.django_db(transaction=True)  # Steps start after commits.
@pytest.mark.requirement("WF-EX", "WF-04", "WF-38", "WF-39")
def test_workflows() -> None:
    chain = {"type": "chain", "id": "wf_019539a4-chain-example", "name": "order-processing"}
    created = api.post("workflows", {**chain, "steps": ORDER}).ok(201)["workflow"]
    has(created, {"type": "chain", "name": "order-processing", "state": "running"})
    assert [(each["index"], each["type"], each["state"]) for each in created["steps"]] == [
        (0, "order.validate", "pending"),
        (1, "payment.charge", "waiting"),
        (2, "inventory.reserve", "waiting"),
        (3, "notification.send", "waiting"),
    ]
    assert created["steps"][0]["job_id"] is not None
    assert created["steps"][1]["job_id"] is None
    has(created["metadata"], {"job_count": 4, "completed_count": 0, "failed_count": 0})
    assert "started_at" not in created["metadata"]
    path = f"workflows/{created['id']}"
    (first,) = api.fetch("orders")
    # The first job runs, and no other has ended.
    shown = api.get(path).ok()["workflow"]
    assert shown["metadata"]["started_at"] == shown["steps"][0]["started_at"]
    end(first, {"valid": True, "total": 99.99})
    (second,) = api.fetch("orders")
    assert second["parent_results"] == [{"valid": True, "total": 99.99}]
    shown = api.get(path).ok()["workflow"]
    has(shown["steps"][0], {"state": "completed", "result": {"valid": True, "total": 99.99}})
    shows(shown["steps"][0], "started_at", "completed_at")
    has(shown["steps"][1], {"state": "active", "job_id": second["id"]})
    end(second, failed=True)
    shown = api.get(path).ok()["workflow"]
    assert [each["state"] for each in shown["steps"]] == [
        *("completed", "failed", "cancelled", "cancelled")
    ]
    has(shown["error"], {"failed_step_index": 1, "failed_job_ids": [second["id"]]})
    wrong = {"job_id": second["id"], "code": "Boom", "message": "it broke", "attempt": 1}
    has(shown["error"]["errors"][0], wrong)
    shows(shown["metadata"], "created_at", "started_at", "completed_at")
    api.delete(path).error(409, "conflict")
    api.get("workflows/wf_nonexistent").error(404, "not_found")
    # A batch of which one mail fails (§12.3, scenario B).
    callbacks = {
        "on_complete": step("batch.report", queue="reporting"),
        "on_success": step("batch.celebrate", queue="notifications"),
        "on_failure": step("batch.alert", queue="alerts", retry={"max_attempts": 5}),
    }
    batch = {"type": "batch", "name": "bulk-email-send", "jobs": MAILS, "callbacks": callbacks}
    batch = api.post("workflows", batch).ok(201)["workflow"]
    one, two, three = api.fetch("mail", count=3)
    end(one, {"status": "sent"})
    end(two, failed=True)
    end(three, {"status": "sent"})
    results = [{"status": "sent"}, None, {"status": "sent"}]
    for queue in ("reporting", "alerts"):
        assert api.get(f"workflows/{batch['id']}").ok()["workflow"]["state"] == "running"
        (callback,) = api.fetch(queue)
        assert callback["parent_results"] == results
        end(callback)
    assert api.fetch("notifications") == []
    assert api.get(f"workflows/{batch['id']}").ok()["workflow"]["state"] == "completed"
    # A group within a chain (§10.3), which is cancelled (§11.3).
    kinds = [step(f"transform.{kind}", queue="etl") for kind in ("csv", "parquet", "json")]
    group = {"type": "group", "id": "wf_019539a4-transform-group", "name": "all", "jobs": kinds}
    steps = [step("data.extract", queue="etl"), group, step("data.load", queue="etl")]
    nested = api.post("workflows", {"type": "chain", "steps": steps}).ok(201)["workflow"]
    (extract,) = api.fetch("etl")
    end(extract, "records")
    three_jobs = api.fetch("etl", count=5)
    assert [job["parent_results"] for job in three_jobs] == [["records"]] * 3
    for job in three_jobs:
        end(job, job["type"])
    (load,) = api.fetch("etl")
    assert load["parent_results"][1] == ["transform.csv", "transform.parquet", "transform.json"]
    stopped = api.delete(f"workflows/{nested['id']}").ok()["workflow"]
    has(stopped, {"id": nested["id"], "state": "cancelled"})
    shows(stopped["metadata"], "cancelled_at", "completed_count", "failed_count")
    # What is wrong is named by its path (§11.1); sagas are an extension (§14).
    error = api.post("workflows", {"type": "chain", "steps": []}).error(400, "invalid_request")
    (found,) = error["details"]["validation_errors"]
    assert found["path"] == "$.steps"
    api.post("workflows", {"type": "saga", "steps": ORDER}).error(400, "invalid_request")
    (completed,) = (
        event["data"]
        for event in events("workflow.step_completed")
        if event["data"]["workflow_id"] == created["id"]
    )
    has(completed, {"workflow_name": "order-processing", "step_type": "order.validate"})
    shows(completed, "step_index", "job_id", "duration_ms", "remaining_steps")
    shows(completed, "step_id", "steps_remaining")


LIMITED = (
    {"key": "payment-api", "concurrency": 5},
    {"key": "email-provider", "rate": {"limit": 1000, "period": "PT1H"}},
    {
        "key": "tenant:acme-corp:reports",
        "concurrency": 3,
        "throttle": {"limit": 1, "period": "PT1S"},
    },
    {
        "key": "push-notifications",
        "rate": {"limit": 10_000, "period": "PT1M"},
        "on_limit": "drop",
    },
    {
        "key": "api.partner.com",
        "concurrency": 10,
        "rate": {"limit": 500, "period": "PT1M"},
        "throttle": {"limit": 10, "period": "PT1S"},
        "on_limit": "wait",
    },
)


@pytest.mark.requirement("RL-EX", "RL-6.2-3")
def test_rate_limiting() -> None:
    for limit in LIMITED:
        job = api.active(queue="limited", rate_limit=limit)
        assert job["rate_limit"] == limit
        found = api.get(f"rate-limits/{limit['key']}").ok()
        assert (found["key"], found["waiting_count"]) == (limit["key"], 0)
        assert found["concurrency"]["active"] == 1
        if "rate" in limit:
            has(found["rate"], {**limit["rate"], "current_count": 1})
            shows(found["rate"], "window_resets_at")
        if "throttle" in limit:
            has(found["throttle"], limit["throttle"])
            shows(found["throttle"], "next_allowed_at")
    listed = api.get("rate-limits").ok()
    assert [each["key"] for each in listed["items"]] == sorted(each["key"] for each in LIMITED)
    has(listed["pagination"], {"total": 5, "page": 1})
    # An override of zero lets none start (§10.2), nor does a limit of zero (§6.2).
    stop = {"concurrency": 0, "expires_at": "2100-02-13T13:00:00Z"}
    assert api.put("rate-limits/payment-api", stop).ok()["concurrency"]["limit"] == 0
    api.push(queue="limited", rate_limit=LIMITED[0])
    api.push(queue="limited", rate_limit={"key": "none", "concurrency": 0})
    assert api.fetch("limited") == []
    # A handler closes a key (§9.1).
    held = api.active(queue="dynamic", rate_limit={"key": "stripe-api", "concurrency": 5})
    error = {"type": "RateLimitExceeded", "message": "slow down"}
    error["rate_limit_until"] = "2100-02-13T12:05:00Z"
    api.post("workers/nack", {"job_id": held["id"], "error": error}).ok()
    api.push(queue="dynamic", rate_limit={"key": "stripe-api", "concurrency": 5})
    assert api.fetch("dynamic") == []
    (adjusted,) = events("rate_limit.dynamic_adjusted")
    has(adjusted["data"], {"key": "stripe-api", "reason": "RateLimitExceeded"})
    shows(adjusted["data"], "until")
    # The limits of a queue (§7.2).
    limits = {"concurrency": 20, "rate": {"limit": 1000, "period": "PT1H"}}
    found = api.put("admin/queues/email/rate-limit", limits).ok()["configuration"]
    assert (found["concurrency"], found["rate_limit"]["rate"]) == (20, limits["rate"])


PAYMENTS = {
    "max_size": 100_000,
    "concurrency": 20,
    "visibility_timeout": 300,
    "default_timeout": 1800,
    "dead_letter_queue": "payments-dlq",
    "retention": {"completed": "P3D", "discarded": "P30D"},
    "allowed_job_types": ["payment.*"],
    "default_retry": {
        "max_attempts": 5,
        "initial_interval": "PT5S",
        "backoff_coefficient": 3.0,
        "on_exhaustion": "dead_letter",
    },
}
INGEST = {
    "max_size": 1_000_000,
    "overflow_policy": "drop_oldest",
    "concurrency": 100,
    "retention": {"completed": "P1D", "discarded": "P1D"},
    "default_retry": {"max_attempts": 1, "on_exhaustion": "discard"},
}
DEFAULT = {
    "concurrency": 10,
    "default_timeout": 1800,
    "retention": {"completed": "P7D", "discarded": "P30D", "cancelled": "P7D"},
    "default_retry": {**RETRY, "jitter": True, "on_exhaustion": "dead_letter"},
}


@pytest.mark.requirement("QC-EX", "QC-07", "QC-13", "QC-S01", "QC-S03")
def test_queue_configuration() -> None:
    for name, config in (("payments", PAYMENTS), ("analytics-ingest", INGEST)):
        created = api.post("queues", {"name": name, "config": config}).ok(201)
        has(created, {"name": name, "state": "active"})
        has(created["config"], config)
        shows(created, "created_at")
    has(api.put("queues/_default/config", DEFAULT).ok(), DEFAULT)
    has(api.get("queues/_default/config").ok(), DEFAULT)
    # The layers (§7.2, §7.3): what the job says, its queue, the default policy.
    of_job = api.push(queue="payments", type="payment.take", timeout=7)
    of_queue = api.push(queue="payments", type="payment.take")
    of_default = api.push(queue="other")
    assert [
        (job["timeout"], job["max_attempts"])
        for job in map(api.info, (of_job["id"], of_queue["id"], of_default["id"]))
    ] == [(7, 5), (1800, 5), (1800, 3)]
    other = {"type": "email.send", "args": [], "queue": "payments"}
    api.post("jobs", other).error(422, "JOB_TYPE_NOT_ALLOWED")
    detail = api.get("queues/payments").ok()
    has(detail, {"name": "payments", "state": "active", "updated_at": detail["created_at"]})
    api.put("queues/payments/config", {"concurrency": 5}).ok()
    changed = api.get("queues/payments").ok()
    assert changed["updated_at"] > changed["created_at"] == detail["created_at"]
    # The values that the queue leaves out are those of the default policy.
    assert detail["config"]["retention"]["cancelled"] == "P7D"
    shows(detail["stats"], "depth", "available", "active", "retryable", "scheduled")
    shows(detail["stats"], "completed_today", "failed_today")
    for _ in range(2):
        api.push(queue="old-payments", type="payment.take")
    api.delete("queues/old-payments", {"strategy": "reject"}).error(409, "conflict")
    moved = {"strategy": "move", "target_queue": "payments"}
    deleted = api.delete("queues/old-payments", moved).ok(202)
    has(deleted, {"queue": "old-payments", **moved, "jobs_affected": 2})
    shows(deleted, "state")
    kinds = {event["type"] for event in events("queue.*")}
    assert kinds == {"queue.created", "queue.config_updated", "queue.deleted"}


@pytest.mark.requirement("FS-EX", "FS-R005")
def test_fair_scheduling() -> None:
    wanted = {"queues": ["critical", "default", "low"], "strategy": "weighted"}
    wanted["weights"] = {"critical": 5, "default": 2, "low": 1}
    assert api.post("workers/fetch", wanted).ok()["jobs"] == []
    pools = {
        "payment-workers": {"queues": ["payments"], "exclusive": True},
        "general": {
            "queues": ["critical", "default", "analytics"],
            "strategy": "strict",
            "starvation_prevention": {
                "enabled": True,
                "rotation_interval": "PT30S",
                "min_dispatch_ratio": 0.1,
            },
        },
    }
    with override_settings(OJS={**settings.OJS, "POOLS": pools}):
        beat = {"worker_id": "worker-abc-123", "pool": "general", **wanted, "concurrency": 10}
        api.post("workers/heartbeat", beat).ok()
        # A pool is a setting.
        api.get("admin/pools").error(422, "unsupported")
        api.put("admin/pools/general", {"queues": ["critical"]}).error(422, "unsupported")
    api.active(queue="critical")
    stats = api.get("admin/scheduling/stats").ok()
    assert stats["window"] == "PT1M"
    (critical,) = (each for each in stats["queues"] if each["name"] == "critical")
    shows(critical, "dispatch_count_1m", "dispatch_ratio_1m", "active_jobs")
    # Weights of tenants, with the prefix of the document and without it.
    fairness = {"enabled": True, "strategy": "fair-share", "default_weight": 1}
    for weight in ("tenant:enterprise-a", "enterprise-a"):
        config = {"tenant_fairness": {**fairness, "weights": {weight: 3}}}
        api.put("queues/shared/config", config).ok()
        for tenant in ("enterprise-a", "startup-b") * 4:
            api.push(queue="shared", meta={"tenant_id": tenant})
        turns = [api.fetch("shared")[0]["meta"]["tenant_id"] for _ in range(8)]
        assert turns[:4].count("enterprise-a") == 3, weight


PROGRESS = {"progress": 0.47, "data": {"rows_processed": 14_000, "rows_total": 30_000}}
CHECKPOINT = {"last_processed_id": "row_14000", "batch_offset": 14_000}


def fails_and_is_fetched_again(job: Any) -> Any:
    end_of_run = {"job_id": job["id"], "error": {"type": "Boom", "message": "it broke"}}
    api.post("workers/nack", end_of_run).ok()
    age(UUID(job["id"]), 2 * HOUR)
    (again,) = api.fetch(job["queue"])
    return again


@pytest.mark.django_db(transaction=True)
@pytest.mark.requirement("PRG-EX", "PRG-010", "PRG-011", "PRG-R010")
def test_progress() -> None:
    job = api.active(queue="import", retry={"max_attempts": 5})
    path = f"jobs/{job['id']}/progress"
    nothing = {"job_id": job["id"], "state": "active", "progress": None, "data": None}
    has(api.get(path).ok(), nothing)
    api.put(path, {**PROGRESS, "checkpoint": CHECKPOINT}).ok()
    response = api.get(path)
    has(response.ok(), {"job_id": job["id"], "state": "active", **PROGRESS})
    shows(response.body, "updated_at")
    assert response.headers["X-OJS-Progress"] == "0.47"
    assert response.headers["Cache-Control"] == "no-cache, private"
    assert "Last-Modified" in response.headers
    again = fails_and_is_fetched_again(job)
    assert (again["attempt"], again["last_checkpoint"]) == (2, CHECKPOINT)
    # An attempt begins without the progress of the one before (§5.3).
    has(api.get(path).ok(), nothing)
    api.get(f"jobs/{NOBODY}/progress").error(404, "not_found")
    steps = [step(f"etl.{name}", queue="etl") for name in ("extract", "transform", "load")]
    chain = api.post("workflows", {"type": "chain", "steps": steps}).ok(201)["workflow"]
    end(api.fetch("etl")[0])
    (transform,) = api.fetch("etl")
    api.put(f"jobs/{transform['id']}/progress", {"progress": 0.73}).ok()
    found = api.get(f"workflows/{chain['id']}/progress").ok()
    has(found, {"workflow_id": chain["id"], "type": "chain"})
    assert round(found["progress"], 2) == 0.58
    assert [(each["type"], each["progress"]) for each in found["steps"]] == [
        ("etl.extract", 1.0),
        ("etl.transform", 0.73),
        ("etl.load", None),
    ]


@pytest.mark.requirement("DUR-EX", "DUR-010", "DUR-011")
def test_durable_execution() -> None:
    # The document's own args are an object, which the core document does not have.
    args = {"source": "old_db", "target": "new_db"}
    api.post("jobs", {"type": "data.migrate", "args": args}).error(400, "invalid_request")
    job = api.active(queue="migrate", worker_id="w-1", type="data.migrate", args=[args])
    assert "checkpoint" not in job
    path = f"jobs/{job['id']}/checkpoint"
    api.get(path).error(404, "not_found")
    state = {"processed": 250_000, "last_id": 250_000, "errors": []}
    saved = api.post(path, {"state": state}).ok()["checkpoint"]
    has(saved, {"job_id": job["id"], "sequence": 1})
    shows(saved, "created_at")
    found = api.get(path).ok()["checkpoint"]
    assert found == {**saved, "state": state}
    again = fails_and_is_fetched_again(job)
    assert (again["attempt"], again["checkpoint"]) == (2, {"state": state, "sequence": 1})
    # Any value of JSON is a state.
    for sequence, value in enumerate(({"a": [1]}, [1, "b"], "text", 1.5, True, None), start=2):
        assert api.post(path, {"state": value}).ok()["checkpoint"]["sequence"] == sequence
        found = api.get(path).ok()["checkpoint"]["state"]
        assert json.dumps(found) == json.dumps(value)
    api.post(path, {"state": 1, "worker_id": "w-1"}).error(409, "conflict")
    assert api.delete(path).ok() == {"deleted": True, "job_id": job["id"]}
    end(again)
    api.post(path, {"state": 1}).error(409, "conflict")
    api.post(f"jobs/{NOBODY}/checkpoint", {"state": 1}).error(404, "not_found")


WEBHOOKS = (
    {
        "url": "https://api.example.com/webhooks/ojs",
        "events": ["job.completed", "job.failed"],
        "filter": {"queues": ["payments"]},
        "metadata": {"description": "Payments"},
    },
    {
        "url": "https://partner-api.example.com/callbacks",
        "events": ["workflow.completed", "workflow.failed"],
    },
    {"url": "https://monitoring.example.com/ojs-events", "events": ["*"]},
)


@pytest.mark.requirement("WH-EX", "WH-007")
def test_webhooks() -> None:
    paths = []
    for wanted in WEBHOOKS:
        created = api.post("webhooks/subscriptions", wanted).ok(201)
        has(created, {**wanted, "active": True})
        assert created["id"].startswith("sub_")
        assert created["secret"].startswith("whsec_")
        shows(created, "created_at")
        paths.append(f"webhooks/subscriptions/{created['id']}")
        found = api.get(paths[-1]).ok()
        again = found.pop("subscription")
        assert again == found == {name: created[name] for name in found}
    assert "secret" not in str(api.get("webhooks/subscriptions").ok())
    changed = {"events": ["job.completed", "job.failed", "job.discarded"], "active": False}
    has(api.ask("PATCH", paths[0], changed).ok(), changed)
    assert api.post(f"{paths[0]}/rotate-secret").ok()["secret"].startswith("whsec_")
    assert api.get("webhooks/deliveries").ok()["deliveries"] == []
    api.delete(paths[0]).ok()
    api.get(paths[0]).error(404, "not_found")

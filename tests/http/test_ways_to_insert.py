"""PUSH over HTTP responds alike by whichever statement the jobs are stored.

Jobs that differ in their arguments only are one envelope until they are stored. PostgreSQL has
a statement for them, and one for a plain job alone. Here each request is sent twice: so, and with
an envelope for each job and the statement for any jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import override_settings

from django_ojs.models import Job, KnownName
from django_ojs.operations import queues
from django_ojs.spec import envelope as spec_envelope
from django_ojs.spec import ids
from django_ojs.storage import in_memory_state
from django_ojs.storage.dialects import postgresql_inserts
from tests.http.api import NOBODY, Api

pytestmark = pytest.mark.django_db

api = Api()
JOB = {"type": "a.b", "args": ["x"]}
#: Of each job and request its own.
OWN = {"id", "created_at", "enqueued_at"}
FIELDS = [field.attname for field in Job._meta.concrete_fields if field.attname not in OWN]


def outcome(path: str, body: Any, headers: dict[str, str]) -> Any:
    Job.objects.all().delete()
    KnownName.objects.all().delete()
    in_memory_state.reset()
    response = api.post(path, body, headers=headers)
    own = response.body or {}
    shown = own.get("jobs", [own.get("job")])
    rows = list(Job.objects.order_by("created_at"))
    if response.status == 201:
        assert [job["id"] for job in shown] == [str(row.pk) for row in rows]
        for job, row in zip(shown, rows, strict=True):
            assert job == row.envelope()
        assert len({row.created_at for row in rows}) == len(rows)
        if path == "jobs":
            assert response.headers["Location"] == f"/ojs/v1/jobs/{rows[0].pk}"
    for job in shown:
        for name in OWN & set(job or ()):
            job[name] = "…"
    if "error" in own:
        own["error"]["request_id"] = "…"
    names = {name: value for name, value in response.headers.items() if not name.startswith("X-Re")}
    names.pop("Location", None)
    stored = [{name: getattr(row, name) for name in FIELDS} for row in rows]
    # `repr`, and not the values: 1, 1.0 and True are equal, and so are objects in another order.
    known = sorted(KnownName.objects.values_list("kind", "name"))
    return response.status, repr(own), names, repr(stored), known


def assert_same(
    monkeypatch: pytest.MonkeyPatch, path: str, body: Callable[[], Any], **headers: str
) -> int:
    found = outcome(path, body(), headers)
    with monkeypatch.context() as patch:
        patch.setattr(spec_envelope, "parse_alike", lambda *args, **options: None)
        patch.setattr(postgresql_inserts, "_is_plain", lambda envelope: False)
        ordinary = outcome(path, body(), headers)
    assert found == ordinary
    return int(found[0])


GOOD = [
    *("", "ü", "\u2028", "a\x7f", "\x01", '"', "\\", "\\u0000", "😀", "],[", "%s %% %(a)s"),
    *("1234567890123456789", 2**53 - 1, 1e300, 1e-300, -0.0, 0.1, 1.0, True, None, [], {}, [[]]),
    {"a": [1, {"b": "],["}]},
]
BAD = ["a\0b", "\ud800", {"a\0": 1}, 2**53, 10**400, "x" * (11 * 2**20)]
OPTIONS: list[dict[str, Any]] = [
    *({"priority": value} for value in (5, True, 1.0, 101, "1", None)),
    *({"queue": value} for value in ("q1", "Q", "", 5, ["q"], None, "q" * 256)),
    *({"type": value} for value in ("A", "", 5, None)),
    *({"meta": value} for value in ({}, {"a": "ü"}, {"tenant_id": 5}, 1, {"x": "x" * 70_000})),
    *({"id": value} for value in (None, "x", NOBODY)),
    *({"specversion": value} for value in ("1.0", "9", 1)),
    {"options": {"queue": "q2", "priority": 3, "retry": {"max_attempts": 7}, "x_own": 1}},
    *({"options": {"max_attempts": 7}, "x_own": [1, 1.0, True]}, {"options": {"args": [9]}}),
    *({"timeout_ms": 1500}, {"tags": ["x"], "retry": {"max_attempts": 2}}, {"timeout": 0}),
    *({"unique": {"keys": ["args"]}}, {"scheduled_at": "2099-01-01T00:00:00Z"}, {"pending": True}),
    *({"parent_id": NOBODY}, {"schema": "urn:x"}, {"rate_limit": {"key": "k", "concurrency": 1}}),
]


@pytest.mark.both
@pytest.mark.postgresql
def test_common_requests_take_the_statements_that_this_compares(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[str] = []
    for name in ("_insert_one", "_insert_alike"):
        original = getattr(postgresql_inserts, name)

        def noted(*args: Any, name: str = name, original: Any = original) -> Any:
            taken.append(name)
            return original(*args)

        monkeypatch.setattr(postgresql_inserts, name, noted)
    api.post("jobs", JOB).ok(201)
    api.post("jobs/batch", {"jobs": [JOB, JOB | {"args": []}]}).ok(201)
    assert taken == ["_insert_one", "_insert_alike"]
    taken.clear()
    for other in (JOB | {"priority": 1}, JOB | {"id": str(ids.uuid7())}, JOB | {"type": "b"}):
        api.post("jobs/batch", {"jobs": [JOB, other]}).ok(201)
    assert taken == []


def test_whatever_is_pushed_the_response_and_the_rows_are_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    statuses = set()
    jobs = [
        *(JOB | {"args": GOOD}, *(JOB | {"args": [value]} for value in BAD)),
        *(JOB | options for options in OPTIONS),
        *(JOB | {"args": args} for args in ({}, None, "x")),
        *([], "x", None, {}, {"type": "a"}, {"args": []}),
    ]
    for job in jobs:
        statuses.add(assert_same(monkeypatch, "jobs", lambda job=job: job))
        alike = job | {"args": [1, "ü"]} if isinstance(job, dict) else job
        statuses.add(assert_same(monkeypatch, "jobs/batch", lambda b=[alike, job]: {"jobs": b}))
    assert statuses >= {201, 400, 413, 422}


@pytest.mark.parametrize(
    "config",
    [
        {"default_retry": {"max_attempts": 9}, "default_timeout": 5},
        {"allowed_job_types": ["test.other"]},
        {"backpressure": {"max_depth": 1}},
        {"backpressure": {"max_depth": 5, "warning_threshold": 0.1}},
        {"tenant_limits": {"max_queue_depth": 5}},
        {"max_envelope_bytes": 5},
        {"rate_limit": {"limit": 1, "period": "PT10S"}},
        {"allowed_producers": ["nobody"]},
    ],
    ids=repr,
)
@pytest.mark.django_db(transaction=True)
def test_a_queue_s_configuration_applies_alike(
    monkeypatch: pytest.MonkeyPatch, config: dict[str, Any]
) -> None:
    queues.configure("default", config)
    assert_same(monkeypatch, "jobs", lambda: JOB | {"queue": ["default"]})
    for path, body in (("jobs", JOB), ("jobs/batch", {"jobs": [JOB, JOB | {"args": ["y"]}]})):
        assert_same(monkeypatch, path, lambda body=body: body)
        assert_same(monkeypatch, path, lambda body=body: body, **{"OJS-Block-Timeout": "x"})


def test_settings_and_a_draining_queue_apply_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = {"jobs": [JOB, JOB | {"args": [2**60, "x" * 2**20]}]}
    for values in ({"MAX_ENVELOPE_BYTES": 2**20}, {"EXACT_INTEGERS": True}):
        with override_settings(OJS=values):
            assert_same(monkeypatch, "jobs", lambda: batch["jobs"][1])
            assert_same(monkeypatch, "jobs/batch", lambda: batch)
    queues.drain("default")
    assert_same(monkeypatch, "jobs", lambda: JOB)
    assert_same(monkeypatch, "jobs/batch", lambda: {"jobs": [JOB, JOB]})


@pytest.mark.django_db(transaction=True)
def test_a_bound_of_another_process_holds_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    api.post("jobs", JOB).ok(201)
    # This process goes on with the configuration that it has read.
    with monkeypatch.context() as patch:
        patch.setattr(in_memory_state, "reset", lambda: None)
        from django_ojs.storage import queue_configs

        before = queue_configs.current()
        queues.configure("default", {"backpressure": {"max_depth": 2}})
        patch.setattr(queue_configs, "current", lambda: before)
        api.post("jobs/batch", {"jobs": [JOB, JOB | {"args": []}]}).error(429, "QUEUE_FULL")
        api.post("jobs", JOB).ok(201)
        api.post("jobs", JOB).error(429, "QUEUE_FULL")
    assert Job.objects.count() == 2

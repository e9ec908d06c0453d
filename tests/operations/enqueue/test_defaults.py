"""A queue's defaults for the jobs that are enqueued to it, in Python and over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import override_settings

import django_ojs as ojs
from django_ojs.extensions.outbox.models import OutboxEntry
from django_ojs.models import Job
from django_ojs.operations import queues
from django_ojs.spec import json
from tests.http.api import Api

pytestmark = pytest.mark.django_db

api = Api()

POLICY = {"max_attempts": 9, "jitter": False}
NINE = ojs.RetryPolicy(max_attempts=9, jitter=False)
CONFIG = {"default_timeout": 90, "visibility_timeout": "PT2M", "default_retry": POLICY}


def values(job: Job) -> tuple[Any, ...]:
    return (job.timeout_ms, job.visibility_timeout_ms, job.retry_policy, job.max_attempts)


@pytest.fixture
def configured() -> None:
    queues.configure("email", CONFIG)


@pytest.mark.parametrize("how", ["one", "batch", "push", "push_batch"])
def test_a_job_without_values_of_its_own_takes_those_of_its_queue(
    configured: None, how: str
) -> None:
    body = {"type": "test.job", "args": [], "queue": "email"}
    if how == "one":
        ojs.enqueue("test.job", queue="email")
    elif how == "batch":
        ojs.enqueue_batch([ojs.request("test.job", queue="email")])
    elif how == "push":
        shown = api.post("jobs", body).ok(201)["job"]
        assert (shown["timeout_ms"], shown["max_attempts"]) == (90_000, 9)
    else:
        api.post("jobs/batch", {"jobs": [body]}).ok(201)
    assert values(Job.objects.get()) == (90_000, 120_000, NINE, 9)


def test_values_of_the_job_win(configured: None) -> None:
    job = ojs.enqueue(
        "test.job", queue="email", timeout=5, visibility_timeout=6, retry={"max_attempts": 2}
    )
    assert values(job.job()) == (5_000, 6_000, ojs.RetryPolicy(max_attempts=2), 2)


def test_the_settings_apply_where_the_queue_has_no_default(configured: None, settings: Any) -> None:
    settings.OJS = settings.OJS | {"DEFAULT_RETRY": {"max_attempts": 4}}
    assert ojs.enqueue("test.job", queue="email").job().max_attempts == 9
    assert ojs.enqueue("test.job", queue="other").job().max_attempts == 4
    queues.configure("email", {"default_retry": None, "default_timeout": 0})
    pushed = api.post("jobs", {"type": "test.job", "args": [], "queue": "email"}).ok(201)["job"]
    assert values(Job.objects.get(pk=pushed["id"])) == (
        None,
        120_000,
        ojs.RetryPolicy(max_attempts=4),
        4,
    )


def test_the_default_policy_and_the_settings_file_have_defaults_too() -> None:
    with override_settings(OJS={"QUEUES": {"bulk": {"default_timeout": "PT1S"}}}):
        queues.configure_default({"default_timeout": 3})
        assert ojs.enqueue("test.job", queue="bulk").job().timeout_ms == 1_000
        assert ojs.enqueue("test.job", queue="other").job().timeout_ms == 3_000


@override_settings(
    OJS={
        "OUTBOX": {"remote": {"url": "http://127.0.0.1:9", "queues": ["email"]}},
        "DEFAULT_RETRY": {"max_attempts": 4},
    }
)
def test_a_job_for_another_server_takes_none_of_a_queue_here(configured: None) -> None:
    ojs.enqueue("test.job", queue="email")
    document: Any = json.loads(OutboxEntry.objects.get().envelope)
    assert document["options"]["retry"]["max_attempts"] == 4
    assert "timeout_ms" not in document["options"]

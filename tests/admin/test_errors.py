"""The errors of operations that the pages repeat."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client, override_settings

import django_ojs as ojs
from django_ojs.extensions.workflows.operations import cancel_workflow
from django_ojs.operations import queues
from tests import factories
from tests.admin import test_cron_jobs
from tests.admin.users import at, root
from tests.operations.cron.scenes import register

# A full queue is counted in a transaction of its own.
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]

CRON = test_cron_jobs.FORM
LIMITS = {"concurrency": "", "rate": "", "rate_period": "", "throttle": "", "throttle_period": ""}
KEY = {"name": "billing", "scopes": ["producer"], "queues": "", "expires_at_0": ""}
HOOK = {"url": "https://hooks.example.com/x", "events": "job.*", "active": "on"}


def shown(response: HttpResponse) -> str:
    text = html.unescape(re.sub(r"<[^>]+>", " ", response.content.decode()))
    return " ".join(text.split())


class Visit:
    """Someone who fills in forms, and the errors that were not said."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.wrong: list[str] = []

    def __call__(self, address: str, body: dict[str, Any], expected: str) -> None:
        response = self._client.post(at(address), body, follow=True)
        assert response.status_code == 200
        if expected not in shown(response):
            place = response.content.decode()
            errors = re.findall(r"(?s)(?:errorlist|messagelist|ojs-error)[^>]*>(.*?)</[uod]", place)
            self.wrong.append(f"{address} {body}: {expected!r} is not in {errors}")


def test_an_error_of_an_operation_is_shown_on_the_page() -> None:
    visit = Visit(root())
    for name in ("draining", "full"):
        factories.push(queue=name)
    queues.drain("draining")
    queues.configure("full", {"backpressure": {"max_depth": 1}})
    new = {"type": "other.go", "args": "[]"}

    visit(
        "job/enqueue/",
        new | {"queue": "draining"},
        "queue draining is draining: it accepts no jobs",
    )
    visit("job/enqueue/", new | {"queue": "draining"}, "Enqueue to another queue, or")
    visit("job/enqueue/", new | {"queue": "full"}, "queue full is full: 1 of 1")

    create = "cronjob/create/"
    visit(create, CRON | {"timezone": "Europe/Pariss"}, "Did you mean Europe/Paris?")
    for expression, problem in (
        ("5-1 * * * *", "minute: the range 5-1 ends before it begins."),
        ("@dayly", "Did you mean @daily?"),
        ("@every x", "interval: write a duration"),
    ):
        visit(create, CRON | {"expression": expression}, problem)
    register("drained", template={"options": {"queue": "draining"}})
    rejected = "enqueued no job (rejected). queue draining is draining: it accepts"
    visit("cronjob/action/run/", {"key": "drained", "confirmed": "1"}, rejected)

    visit("webhook/add/", HOOK | {"url": "http://a.example"}, "url must begin with https://.")
    visit("webhook/add/", HOOK | {"events": "nothing.here"}, "no event that nothing.here matches")
    visit("apikey/add/", KEY | {"queues": "Not-A-Queue"}, "queue must consist of a-z, 0-9")
    new_key = LIMITS | {"key": "acme", "override_until": ""}
    visit("limitkey/add/", new_key | {"key": "-!"}, "key must be letters, digits")
    none = {"rate": "0", "rate_period": "PT1M"}
    visit("limitkey/add/", new_key | none, "an integer from 1 to 1000000000")
    rate = {"rate": "5", "rate_period": "PT0S"}
    visit("limitkey/add/", new_key | rate, "must be an ISO 8601 duration longer than zero")
    past = {"concurrency": "1", "override_until": "2020-01-01 00:00"}
    visit("limitkey/add/", new_key | past, "override until must")

    # This moment has no time in UTC, whose calendar ends before.
    with override_settings(TIME_ZONE="America/New_York"):
        out = "must lie between the years 1 and 9999"
        never = {"expires_at_0": "9999-12-31", "expires_at_1": "23:59"}
        visit("apikey/add/", KEY | never, out)
        never = {"concurrency": "1", "override_until": "9999-12-31 23:59"}
        visit("limitkey/add/", new_key | never, out)

    running = factories.active("w-1", queue="runs")
    for action, key, said in (
        ("delete", running.id, "delete needs it cancelled or completed or discarded"),
        ("retry", running.id, "The job is active; retry"),
        ("run-again", running.id, "only a job that has ended"),
    ):
        visit(f"job/action/{action}/", {"key": str(key), "confirmed": "1"}, said)
    workflow = ojs.chain(ojs.request("other.go", [])).enqueue()
    cancel_workflow.cancel(workflow.id)
    ended = {"key": str(workflow.id), "confirmed": "1"}
    visit("workflow/action/cancel/", ended, "The workflow has ended: it is cancelled.")

    assert not visit.wrong, "\n".join(visit.wrong)

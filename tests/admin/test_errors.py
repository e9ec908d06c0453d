"""The errors of operations that the pages repeat."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client

import django_ojs as ojs
from django_ojs.operations import queues
from django_ojs.operations.cancel import cancel
from django_ojs.operations.workflows import cancellation as workflow_cancellation
from tests import factories
from tests.admin import test_cron_jobs
from tests.admin.test_pages import BASE
from tests.admin.users import root
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
        response = self._client.post(f"{BASE}{address}", body, follow=True)
        assert response.status_code == 200
        if expected not in shown(response):
            place = response.content.decode()
            errors = re.findall(r"(?s)(?:errorlist|messagelist|ojs-error)[^>]*>(.*?)</[uod]", place)
            self.wrong.append(f"{address} {body}: {expected!r} is not in {errors}")


def test_an_error_of_an_operation_is_shown_on_the_page() -> None:
    visit = Visit(root())
    for name in ("mail", "draining", "full", "old"):
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
    visit("job/enqueue/", new | {"queue": "No Queue"}, "queue must consist of a-z, 0-9, - and dots")
    visit("job/enqueue/", {"type": "Not A Type"}, "type must be dotted segments of a-z")
    visit("job/enqueue/", new | {"args": "[1e999]"}, "[0] is NaN, infinite or too large")
    visit("job/enqueue/", new | {"args": '["\\ud800"]'}, "[0] contains a lone surrogate")
    visit("job/enqueue/", new | {"args": "[9007199254740993]"}, "beyond ±(2**53-1)")

    register("taken")
    in_code = test_cron_jobs.in_code()
    create = "cronjob/create/"
    visit(create, CRON | {"name": "taken"}, "name is taken by another cron job.")
    visit(create, CRON | {"name": "Not A Name"}, "name must consist of a-z, 0-9, - and dots")
    visit(create, CRON | {"type": "Not A Type"}, "type must be dotted segments")
    visit(create, CRON | {"args": "{"}, "the document is not JSON: ")
    visit(create, CRON | {"args": '{"a": 1}'}, "args must be an array")
    visit(create, CRON | {"timezone": "EST"}, "an abbreviation can mean several timezones")
    visit(create, CRON | {"timezone": "Europe/Pariss"}, "Did you mean Europe/Paris?")
    for expression, problem in (
        ("0 25 * * *", "hour: '25' is out of range. Use 0 to 23."),
        ("0 0 * FOO *", "month: 'FOO' is no value. Use 1 to 12, or JAN to DEC."),
        ("0 0 31 2 *", "day of month: no chosen month has such a day"),
        ("*/99 * * * *", "minute: the step '99' is out of range."),
        ("5-1 * * * *", "minute: the range 5-1 ends before it begins."),
        ("1,, * * * *", "minute: a value of the list is missing."),
        ("* *", "expression: the number of fields is 2."),
        ("@dayly", "Did you mean @daily?"),
        ("@every x", "interval: write a duration"),
    ):
        visit(create, CRON | {"expression": expression}, problem)
    removal = {"key": in_code.pk, "confirmed": "1"}
    visit("cronjob/action/remove/", removal, "is declared in code")
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

    done = factories.push(queue="old")
    cancel(done.id)
    running = factories.active("w-1", queue="runs")
    factories.worker("w-1")
    for action, key, said in (
        ("delete", running.id, "delete needs it cancelled or completed or discarded"),
        ("retry", running.id, "The job is active; retry"),
        ("run-again", running.id, "only a job that has ended"),
    ):
        visit(f"job/action/{action}/", {"key": str(key), "confirmed": "1"}, said)
    visit(
        "bulkoperation/create/retry/",
        {"q": "state:completed"},
        "Retry needs jobs that are discarded.",
    )
    visit("worker/action/deregister/", {"key": "w-1", "confirmed": "1"}, "still sends its beats")
    workflow = ojs.chain(ojs.request("other.go", [])).enqueue()
    workflow_cancellation.cancel(workflow.id)
    ended = {"key": str(workflow.id), "confirmed": "1"}
    visit("workflow/action/cancel/", ended, "The workflow has ended: it is cancelled.")

    assert not visit.wrong, "\n".join(visit.wrong)

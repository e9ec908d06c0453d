"""The steps of a job in the admin: what it waits for, the axis of time, and the actions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client, override_settings

import django_ojs
from django_ojs.extensions import steps
from django_ojs.extensions.audit.models import AuditEntry
from django_ojs.extensions.steps import findings
from django_ojs.models import Job
from django_ojs.operations import queues
from django_ojs.reports.not_running import why_not_running
from django_ojs.testing import Drained, TestContext
from tests.admin.users import root, staff
from tests.extensions.steps.programs import Calls, Program
from tests.testapp import steps_jobs
from tests.testapp.jobs import echo

pytestmark = [pytest.mark.django_db, pytest.mark.once]

BASE = "/admin/django_ojs/job/"


def text(client: Client, address: str) -> str:
    response = client.get(address)
    assert response.status_code == 200
    return " ".join(response.content.decode().split())


def page_of(program: Program) -> str:
    return f"{BASE}{program.id}/change/"


def action(program: Program, number: int, name: str) -> str:
    return f"{BASE}{program.id}/steps/{number}/{name}/"


def fulfil(ctx: django_ojs.JobContext) -> Any:
    steps.run("charge", Calls(), {"card": "a secret"})
    return steps.wait("packed", "order-7", timeout=timedelta(days=14))


def waiting(ojs: TestContext) -> Program:
    program = Program(ojs, fulfil)
    assert program.run() == Drained(suspended=1)
    return program


@pytest.mark.both
def test_the_page_and_the_list_say_what_a_job_waits_for(ojs: TestContext) -> None:
    program = waiting(ojs)
    ojs.advance(timedelta(days=2))
    reason = why_not_running(program.job)
    assert reason is not None
    until = f"{program.job.due_at:%Y-%m-%d %H:%M:%S} UTC"
    assert reason.sentence == f"It has waited 2 d for packed of order-7, at most until {until}."
    client = root()
    assert reason.sentence in text(client, page_of(program))
    assert reason.sentence in text(client, BASE)


@pytest.mark.both
def test_what_the_other_kinds_of_steps_wait_for(ojs: TestContext) -> None:
    def sentence(function: Any) -> str:
        program = Program(ojs, function)
        program.run(max_jobs=1)
        reason = why_not_running(program.job)
        assert reason is not None
        return reason.sentence

    retry = django_ojs.RetryPolicy(max_attempts=3, initial_interval="PT1M")
    assert "in the step night, and sleeps until" in sentence(lambda ctx: steps.sleep("night", 60))
    assert "for the jobs of the step labels, at most until" in sentence(
        lambda ctx: steps.gather("labels", [echo.s(1)])
    )
    ojs.clear()
    assert "Its step charge has failed (calls: 1), and is tried again" in sentence(
        lambda ctx: steps.run("charge", Calls(fails=2), retry=retry)
    )


def test_the_steps_are_on_an_axis_with_results_for_who_may_see_them(ojs: TestContext) -> None:
    program = waiting(ojs)
    page = text(root(), page_of(program))
    assert page.count('<svg class="ojs-run"') == 2  # No run of the job has ended as an attempt.
    assert "has not run yet" not in page
    assert "<b>charge</b>" in page
    assert "due <time" in page
    assert "Wait for a signal: order-7" in page
    assert "a secret" in page
    page = text(staff("view_job"), page_of(program))
    assert "<b>charge</b>" in page
    assert "a secret" not in page
    with override_settings(OJS={"ADMIN_REDACT": ["card"]}):
        assert "a secret" not in text(root("second"), page_of(program))


def test_a_large_result_is_not_read(ojs: TestContext) -> None:
    program = Program(ojs, lambda ctx: steps.run("large", Calls(), "x" * 20_000))
    program.run()
    page = text(root(), page_of(program))
    assert "20002 characters of JSON" in page


def test_the_error_of_a_step_needs_the_permission(ojs: TestContext) -> None:
    retry = django_ojs.RetryPolicy(max_attempts=1)
    program = Program(ojs, lambda ctx: steps.run("charge", Calls(fails=1), retry=retry))

    def goes_on(ctx: django_ojs.JobContext) -> None:
        try:
            steps.run("charge", Calls(fails=1), retry=retry)
        except ValueError:
            steps.run("undo", Calls())

    program.change(goes_on)
    program.run()
    assert "<b>ValueError</b> not this time" in text(root(), page_of(program))
    assert "not this time" not in text(staff("view_job"), page_of(program))


def test_an_operator_sends_the_signal(ojs: TestContext) -> None:
    program = waiting(ojs)
    client = root()
    assert "Send the signal…" in text(client, page_of(program))
    address = action(program, 1, "signal")
    assert "all others that wait for packed of order-7 get the signal" in text(client, address)
    bad = client.post(address, {"confirmed": "1", "payload": "{no json"})
    assert "ojs-error" in bad.content.decode()
    assert program.job.state == "scheduled"
    client.post(address, {"confirmed": "1", "payload": '{"parts": [1]}'})
    assert program.run() == Drained(completed=1)
    assert program.job.result == {"parts": [1]}
    entry = AuditEntry.primary.get()
    assert (entry.action, entry.object_id) == ("job.signalled", str(program.id))
    assert entry.detail == {"signal": "packed", "key": "order-7"}


def test_an_operator_ends_a_wait_after_a_question(ojs: TestContext) -> None:
    program = waiting(ojs)
    client = root()
    address = action(program, 1, "end-wait")
    assert "ends with a timeout" in text(client, address)
    client.post(address)
    assert program.job.state == "scheduled"
    client.post(address, {"confirmed": "1"})
    assert program.job.state == "available"
    entry = AuditEntry.primary.get()
    assert (entry.action, entry.detail) == ("job.wait_ended", {"step": "packed"})
    assert program.run() == Drained(discarded=1)
    assert program.job.error["type"] == "WaitTimedOut"


def test_an_operator_wakes_a_sleeper(ojs: TestContext) -> None:
    program = Program(ojs, lambda ctx: steps.sleep("cool-off", timedelta(days=2)))
    program.run()
    client = root()
    assert "Wake now" in text(client, page_of(program))
    client.post(action(program, 0, "wake"))
    assert program.run() == Drained(completed=1)
    response = client.post(action(program, 0, "wake"), follow=True)
    assert "The job is completed" in response.content.decode()


def test_an_operator_runs_a_job_again_from_a_step(ojs: TestContext) -> None:
    charge, ship = Calls(), Calls(fails=1)

    def ships(ctx: django_ojs.JobContext) -> None:
        steps.run("charge", charge)
        steps.run("ship", ship, retry=django_ojs.RetryPolicy(max_attempts=1))

    program = Program(ojs, ships)
    program.run()
    client = root()
    assert "Run again from here" in text(client, page_of(program))
    address = action(program, 0, "again")
    assert "all steps after it are forgotten" in text(client, address)
    client.post(address, {"confirmed": "1"})
    acts = AuditEntry.primary.order_by("pk").values_list("action", "detail")
    assert list(acts) == [
        ("job.steps_forgotten", {"step": "charge", "steps": 1}),
        ("job.retried", {}),
    ]
    assert program.run() == Drained(completed=1)
    assert len(charge.made) == 2
    assert "Run again from here" not in text(client, page_of(program))


def test_the_actions_need_the_permission_and_a_step(ojs: TestContext) -> None:
    program = waiting(ojs)
    viewer = staff("view_job")
    page = text(viewer, page_of(program))
    for label in ("Send the signal", "End the wait", "Run again from here"):
        assert label not in page
    for name in ("signal", "end-wait", "wake", "again"):
        address = action(program, 1, name)
        assert viewer.post(address, {"confirmed": "1", "payload": "1"}).status_code == 403
        assert Client().get(address).status_code == 302
    client = root()
    assert client.get(action(program, 2, "wake")).status_code == 404
    assert client.get(action(program, 1, "other")).status_code == 404
    assert program.job.state == "scheduled"


def test_a_step_that_waits_for_jobs_is_forgotten_with_them(ojs: TestContext) -> None:
    program = Program(ojs, lambda ctx: steps.gather("labels", [echo.s(1)]))
    program.run(max_jobs=1)
    root().post(action(program, 0, "again"), {"confirmed": "1"})
    assert [job.state for job in Job.objects.filter(type="testapp.echo")] == ["cancelled"]


def test_queues_and_limits_that_may_drop_a_job_between_two_steps_are_named(
    ojs: TestContext,
) -> None:
    waiting(ojs)
    assert findings.found() == []
    queues.configure("default", {"backpressure": {"max_depth": 5, "strategy": "drop_oldest"}})
    (found,) = findings.found()
    assert found.text.endswith("may drop them: default.")
    queues.configure("default", {"backpressure": None})
    steps_jobs.program = lambda ctx: steps.sleep("cool-off", 60)
    limit = django_ojs.RateLimitPolicy(key="carrier", concurrency=1, on_limit="drop")
    steps_jobs.run_program.options(rate_limit=limit).enqueue()
    ojs.drain()
    (found,) = findings.found()
    assert found.text.endswith("may drop them: steps.program.")

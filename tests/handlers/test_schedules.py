"""`@ojs.cron`: schedules that the code declares, and their sync with the database."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.test import override_settings

import django_ojs as ojs
from django_ojs.extensions.cron import operations as cron
from django_ojs.extensions.cron import schedules
from django_ojs.extensions.cron.models import CronJob
from django_ojs.extensions.cron.operations import registration
from django_ojs.spec.errors import InvalidArgs, InvalidCronExpression, InvalidRequest
from tests.cases import together
from tests.factories import jobs
from tests.operations.cron.scenes import make_due, register, tick

pytestmark = pytest.mark.django_db


def declare(*schedule: Any, **values: Any) -> ojs.Handler[..., Any]:
    """Declare a schedule of a new handler."""

    @ojs.job("shop.nightly_report", queue="reports", timeout=60)
    def report(day: int = 0, *, copies: int = 1) -> None:
        """Make the report.

        It is long.
        """

    return ojs.cron(*(schedule or ("0 3 * * *",)), **values)(report)


def test_a_handler_stays_a_handler_and_its_schedule_is_stored_by_a_sync() -> None:
    handler = declare(timezone="Europe/Paris")
    assert isinstance(handler, ojs.Handler)
    assert not CronJob.primary.exists()
    result = schedules.sync()
    assert result.created == ["shop.nightly-report"]
    stored = cron.get("shop.nightly-report")
    assert (stored.expression, stored.timezone, stored.owner) == (
        "0 3 * * *",
        "Europe/Paris",
        "code",
    )
    assert stored.description == "Make the report."
    assert stored.defined_in.endswith("test_schedules.declare.<locals>.report")
    tick("shop.nightly-report")
    job = jobs().get()
    assert (job.type, job.queue, job.timeout_ms) == ("shop.nightly_report", "reports", 60_000)


def test_arguments_and_options_of_a_schedule_are_those_of_its_jobs() -> None:
    declare(
        "@daily",
        name="late",
        args=[7],
        overlap_policy="allow",
        description="Other words",
        priority=ojs.LOW,
        tags=["night"],
        meta={"team": "x"},
        retry={"max_attempts": 9},
        unique={"keys": ["type"], "on_conflict": "ignore"},
        scheduled_at=timedelta(minutes=5),
        expires_at=timedelta(hours=1),
    )
    schedules.sync()
    stored = cron.get("late")
    assert (stored.overlap_policy, stored.description) == ("allow", "Other words")
    tick("late")
    job = jobs().get()
    assert (job.args, job.priority, job.tags, job.max_attempts) == ([7], -10, ["night"], 9)
    assert job.meta["team"] == "x"
    assert job.unique_key is not None
    assert job.state == "scheduled"
    assert job.due_at is not None
    assert job.expires_at is not None
    assert abs(job.due_at - job.created_at - timedelta(minutes=5)) < timedelta(minutes=1)
    assert abs(job.expires_at - job.created_at - timedelta(hours=1)) < timedelta(minutes=1)


def test_a_sync_changes_and_removes_what_the_code_has_changed_and_removed() -> None:
    handler = declare(name="a")
    ojs.cron("@hourly", name="b")(handler)
    ojs.cron("@hourly", name="c")(handler)
    schedules.sync()
    due = make_due("b")
    del schedules.declarations["a"], schedules.declarations["c"]
    ojs.cron("@weekly", name="c")(handler)
    planned = schedules.sync(dry_run=True)
    assert CronJob.primary.count() == 3
    done = schedules.sync()
    assert planned == done
    assert done.lines() == [
        ("a", "removed: the code no longer declares it"),
        ("c", "changed"),
    ]
    assert done.unchanged == ["b"]
    assert cron.get("b").due_at == due
    assert cron.get("c").expression == "@weekly"
    assert schedules.sync().lines() == []


def test_what_an_operator_disabled_stays_disabled() -> None:
    declare(name="a")
    schedules.sync()
    cron.set_enabled("a", False)
    schedules.declarations.clear()
    declare("@weekly", name="a")
    assert schedules.sync().changed == ["a"]
    assert cron.get("a").enabled is False


def test_what_an_operator_disabled_is_still_disabled_when_it_is_back_in_the_code() -> None:
    declare("@daily", name="a")
    declare("@daily", name="b")
    schedules.sync()
    cron.set_enabled("a", False)
    # Such as a deployment of the version before.
    schedules.declarations.clear()
    planned = schedules.sync(dry_run=True)
    assert (planned.removed, planned.kept) == (["b"], ["a"])
    done = schedules.sync()
    assert (done.removed, done.kept) == (["b"], ["a"])
    kept = cron.get("a")
    assert (kept.enabled, kept.owner, kept.next_run_at) == (False, "api", None)
    # It is named once, and an operator may remove it now; a process that starts at the same time
    # does not, if it has been resumed meanwhile.
    assert schedules.sync().lines() == []
    cron.set_enabled("a", True)
    registration.leave_code("a", service="")
    cron.set_enabled("a", False)
    declare("@daily", name="a")
    assert schedules.sync().taken_over == ["a"]
    again = cron.get("a")
    assert (again.enabled, again.owner, again.next_run_at) == (False, "code", None)
    schedules.declarations.clear()
    schedules.sync()
    cron.remove("a")


def test_what_another_project_has_taken_over_meanwhile_stays() -> None:
    declare(name="a")
    schedules.sync()
    CronJob.primary.update(service="shop")
    registration.leave_code("a", service="")
    kept = cron.get("a")
    assert (kept.enabled, kept.owner, kept.service) == (True, "code", "shop")


def test_cron_jobs_of_the_api_and_of_other_projects_stay() -> None:
    register("theirs")
    declare(name="a")
    with override_settings(OJS={"SERVICE_NAME": "other-shop"}):
        schedules.sync()
    schedules.declarations.clear()
    assert schedules.sync().lines() == []
    assert CronJob.primary.count() == 2


def test_the_code_takes_over_what_something_else_registered() -> None:
    register("a")
    declare(name="a")
    assert schedules.sync().taken_over == ["a"]
    assert cron.get("a").owner == "code"


@together(
    ("schedule", "values", "error", "says"),
    [
        ("0 25 * * *", {}, InvalidCronExpression, "hour"),
        ("0 3 * * *", {"timezone": "EST"}, InvalidRequest, "timezone"),
        ("0 3 * * *", {"name": "No Name"}, InvalidRequest, "name must consist"),
        ("0 3 * * *", {"overlap_policy": "never"}, InvalidRequest, "overlap_policy"),
        ("0 3 * * *", {"args": [1, 2, 3]}, InvalidArgs, "arguments do not fit"),
        ("0 3 * * *", {"kwargs": {"pages": 1}}, InvalidArgs, "arguments do not fit"),
        ("0 3 * * *", {"args": "abc"}, InvalidArgs, "args must be a list"),
        ("0 3 * * *", {"queu": "x"}, InvalidRequest, "queu is not an option"),
        ("0 3 * * *", {"overlap": "skip"}, InvalidRequest, "Did you mean overlap_policy"),
        ("0 3 * * *", {"zone": "UTC"}, InvalidRequest, "Did you mean timezone"),
        ("0 3 * * *", {"pending": True}, InvalidRequest, "pending"),
    ],
    undo=True,
)
def test_what_is_wrong_is_an_error_where_it_is_declared(
    schedule: str, values: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        declare(schedule, **values)
    assert schedules.declared() == []


def test_two_schedules_of_a_handler_need_names() -> None:
    handler = declare()
    with pytest.raises(ImproperlyConfigured, match="is declared twice"):
        ojs.cron("@daily")(handler)
    assert declare("@daily")  # The same function again is a reload.
    assert [each.expression for each in schedules.declared()] == ["@daily"]


def test_without_parentheses_it_is_an_error() -> None:
    bare: Any = ojs.cron
    with pytest.raises(ImproperlyConfigured, match=r"write @ojs\.cron\("):
        bare(declare())


def test_it_stands_above_a_handler() -> None:
    with pytest.raises(ImproperlyConfigured, match=r"stands above @ojs.job"):
        ojs.cron("@daily")(make_due)


@pytest.mark.django_db(transaction=True)
class TestWorker:
    def test_it_stores_the_schedules_when_it_starts(self) -> None:
        declare()
        call_command("ojs_worker", "--once", "--threads", "1", verbosity=0)
        assert cron.get("shop.nightly-report").enabled

    def test_one_that_cannot_be_stored_ends_it(self) -> None:
        declare(name="a")
        # Such as a timezone that this machine does not have.
        schedules.declarations["a"] = replace(schedules.declarations["a"], timezone="Gone/Zone")
        with pytest.raises(CommandError, match="schedule of the code cannot be stored"):
            call_command("ojs_worker", "--once", verbosity=0)

"""Registering, enabling, disabling, removing and listing cron jobs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_ojs.extensions.cron import operations as cron
from django_ojs.extensions.cron.models import CronJob, CronOwner
from django_ojs.spec.errors import Conflict, InvalidCronExpression, InvalidRequest, NotFound
from tests.factories import jobs
from tests.operations.cron.scenes import DefinitionFactory, make_due, reasons, register, tick

pytestmark = pytest.mark.django_db


@pytest.mark.requirement("CRON-07", "CRON-15", "CRON-19")
def test_a_new_cron_job_has_the_defaults_and_the_time_of_its_next_run() -> None:
    job, is_new = cron.register(DefinitionFactory(expression="0 * * * *"))
    assert is_new
    assert (job.timezone, job.overlap_policy, job.enabled) == ("UTC", "skip", True)
    assert (job.last_run_at, job.run_count, job.description) == (None, 0, None)
    assert job.next_run_at == job.due_at
    assert job.next_run_at is not None
    assert timedelta(0) < job.next_run_at - job.created_at <= timedelta(hours=1)
    assert (job.next_run_at.minute, job.next_run_at.second) == (0, 0)
    assert str(CronJob.primary.get()) == "report"


@pytest.mark.requirement("CRON-01", "CRON-26")
def test_a_name_is_registered_once_and_changed_by_the_second_time() -> None:
    register(description="first")
    job, is_new = cron.register(
        DefinitionFactory(template={"type": "other.type", "options": {"queue": "slow"}})
    )
    assert not is_new
    assert (job.type, job.queue, job.description) == ("other.type", "slow", None)
    assert CronJob.primary.count() == 1


def test_a_cron_job_that_is_registered_as_it_is_keeps_its_next_run() -> None:
    register()
    due = make_due("report")
    assert register().due_at == due  # A deployment at this time does not lose the run.


def test_a_change_of_the_schedule_moves_the_next_run() -> None:
    before = register(expression="0 0 1 1 *").due_at
    hourly = register(expression="30 * * * *").due_at
    assert hourly != before
    assert register(expression="0 0 1 1 *", timezone="Europe/Paris").due_at not in (before, hourly)


@pytest.mark.parametrize(
    "change",
    [{"expression": "0 3 * * *"}, {"timezone": "Europe/Berlin"}],
    ids=lambda each: next(iter(each)),
)
def test_a_change_of_the_schedule_loses_no_time_that_has_come(change: dict[str, str]) -> None:
    # A deployment ends three days without a process.
    register(expression="0 2 * * *", timezone="UTC")
    due = make_due("report", ago=timedelta(days=3))
    assert register(**({"expression": "0 2 * * *", "timezone": "UTC"} | change)).due_at == due
    assert cron.fire_due() == 1
    assert jobs().count() == 1
    assert cron.get("report").missed_count in (2, 3)
    assert reasons() == ["missed"]


def test_a_cron_job_that_is_disabled_while_it_is_due_enqueues_nothing() -> None:
    register()
    make_due("report")
    assert register(enabled=False).due_at is None
    assert cron.fire_due() == 0


def test_an_interval_counts_from_the_registration() -> None:
    job = register(expression="@every 30m")
    assert job.due_at is not None
    assert abs(job.due_at - job.created_at - timedelta(minutes=30)) < timedelta(minutes=1)


@pytest.mark.requirement("CRON-28")
def test_a_disabled_cron_job_has_no_next_run() -> None:
    register()
    assert cron.set_enabled("report", False).next_run_at is None
    stored = cron.get("report")
    assert (stored.enabled, stored.next_run_at, stored.due_at) == (False, None, None)
    assert cron.set_enabled("report", True).next_run_at is not None


def test_registering_again_does_not_enable_what_an_operator_disabled() -> None:
    register()
    cron.set_enabled("report", False)
    assert register(expression="@daily").enabled is False
    assert register(enabled=True).next_run_at is not None
    assert register(enabled=False).next_run_at is None


def test_enabling_an_enabled_one_keeps_its_next_run() -> None:
    register()
    due = make_due("report")
    assert cron.set_enabled("report", True).due_at == due


def test_what_is_removed_is_gone_and_its_jobs_stay() -> None:
    register()
    tick("report")
    cron.remove("report")
    assert [run.name for run in cron.runs("report")] == ["report"]
    for call in (cron.get, cron.remove, lambda name: cron.set_enabled(name, True)):
        with pytest.raises(NotFound) as caught:
            call("report")
        assert caught.value.details["resource_id"] == "report"


def test_what_code_owns_changes_with_the_code_and_can_be_disabled() -> None:
    own: dict[str, Any] = {"owner": CronOwner.CODE, "service": "shop", "defined_in": "shop.jobs.x"}
    register(**own)
    with pytest.raises(Conflict, match=r"declared in code \(shop.jobs.x\)"):
        register(expression="@daily")
    with pytest.raises(Conflict):
        cron.remove("report")
    assert cron.set_enabled("report", False).enabled is False
    assert register(**own, expression="@daily").expression == "@daily"
    cron.remove("report", owner=CronOwner.CODE)
    assert not CronJob.primary.exists()


@pytest.mark.parametrize(
    ("values", "field"),
    [
        pytest.param({"name": "Report"}, "name", marks=pytest.mark.requirement("CRON-02")),
        pytest.param({"name": "-report"}, "name", marks=pytest.mark.requirement("CRON-02")),
        pytest.param({"name": "a" * 256}, "name", marks=pytest.mark.requirement("CRON-02")),
        pytest.param({"name": "a\n"}, "name", marks=pytest.mark.requirement("CRON-02")),
        pytest.param({"name": None}, "name", marks=pytest.mark.requirement("CRON-02")),
        pytest.param({"expression": ""}, "cron", marks=pytest.mark.requirement("CRON-03")),
        pytest.param(
            {"expression": "60 * * * *"}, "cron", marks=pytest.mark.requirement("CRON-11")
        ),
        pytest.param({"expression": None}, "cron", marks=pytest.mark.requirement("CRON-11")),
        pytest.param({"timezone": "+05:00"}, "timezone", marks=pytest.mark.requirement("CRON-14")),
        pytest.param({"timezone": "EST"}, "timezone", marks=pytest.mark.requirement("CRON-14")),
        pytest.param({"timezone": "Nowhere"}, "timezone", marks=pytest.mark.requirement("CRON-13")),
        pytest.param({"timezone": 1}, "timezone", marks=pytest.mark.requirement("CRON-13")),
        pytest.param(
            {"template": {"type": "Not A Type"}}, "type", marks=pytest.mark.requirement("CRON-04")
        ),
        pytest.param({"template": {"args": {}}}, "args", marks=pytest.mark.requirement("CRON-05")),
        pytest.param({"template": {"options": {"pending": True}}}, "options.pending"),
        pytest.param(
            {"template": {"options": {"scheduled_at": "2030-01-01T00:00:00Z"}}},
            "options.scheduled_at",
        ),
        pytest.param({"overlap_policy": "sometimes"}, "overlap_policy"),
        pytest.param({"overlap_policy": None}, "overlap_policy"),
        pytest.param({"enabled": "yes"}, "enabled"),
        pytest.param({"description": 5}, "description"),
        pytest.param({"description": "a" * 10_001}, "description"),
    ],
)
def test_what_cannot_be_is_rejected_with_the_name_of_the_field(
    values: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        register(**values)
    assert caught.value.details["field"] == field
    assert not CronJob.primary.exists()


def test_an_expression_that_cannot_be_names_its_part() -> None:
    with pytest.raises(InvalidCronExpression) as caught:
        register(expression="0 25 * * *")
    assert caught.value.details["expression_field"] == "hour"


@pytest.mark.parametrize(
    ("given", "policy"),
    [("cancel", "cancel_previous"), ("replace", "cancel_previous"), ("queue", "enqueue")],
)
def test_an_overlap_policy_has_other_names(given: str, policy: str) -> None:
    assert register(overlap_policy=given).overlap_policy == policy


def names(**filters: Any) -> list[str]:
    return [job.name for job in cron.page(**filters).rows]


@pytest.mark.requirement("CRON-S06")
def test_the_list_is_in_the_order_of_names_and_filters() -> None:
    for name in ("c", "a", "d", "b"):
        register(name, template={"options": {"queue": f"q{name}"}}, enabled=name != "d")
    assert names() == ["a", "b", "c", "d"]
    assert names(enabled=False) == ["d"]
    assert names(within=["qa", "qd"]) == ["a", "d"]

"""Cron jobs after the clock of the database was set back, and schedules that are random."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F

from django_ojs.extensions.cron import operations as cron
from django_ojs.extensions.cron.models import CronJob, CronOwner
from django_ojs.extensions.cron.operations import clock
from tests.cases import together
from tests.operations.cron.scenes import register

pytestmark = pytest.mark.django_db

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def after_setting_back(expression: str, by: timedelta) -> tuple[CronJob, CronJob, int]:
    """Return a cron job before and after the look, and what that returns."""
    register("report", expression=expression)
    # The same as a clock that is earlier by so much: what it is due at comes from the old one.
    CronJob.objects.update(due_at=F("due_at") + by, next_run_at=F("next_run_at") + by)
    before = cron.get("report")
    moved = clock.put_right()
    return before, cron.get("report"), moved


@together(
    ("expression", "by"),
    [
        ("* * * * *", HOUR),
        ("*/15 * * * *", HOUR),
        ("@every 1m", HOUR),
        ("0 * * * *", 3 * HOUR),
        ("@hourly", DAY),
        ("30 4 * * *", 10 * DAY),
    ],
)
def test_a_schedule_goes_on_by_the_clock_as_it_is(expression: str, by: timedelta) -> None:
    CronJob.objects.all().delete()
    before, after, moved = after_setting_back(expression, by)
    assert moved == 1
    assert after.due_at is not None
    assert before.due_at is not None
    # At the time that it had before the clock was moved, give or take an occurrence.
    assert after.due_at <= before.due_at - by + timedelta(minutes=1)
    assert after.next_run_at == after.due_at
    assert clock.put_right() == 0


@together(
    ("expression", "by"),
    [("30 4 * * *", DAY), ("0 * * * *", HOUR), ("@every 2h", HOUR), ("* * * * *", 0 * HOUR)],
)
def test_one_occurrence_that_comes_again_is_left_out(expression: str, by: timedelta) -> None:
    CronJob.objects.all().delete()
    before, after, moved = after_setting_back(expression, by)
    assert (moved, after.due_at) == (0, before.due_at)


def test_a_disabled_cron_job_stays_as_it_is() -> None:
    register("report", expression="* * * * *", enabled=False)
    assert clock.put_right() == 0


def change(minute: int, **values: Any) -> None:
    register("report", expression=f"{minute} 4 * * *", owner=CronOwner.CODE, **values)


def test_a_schedule_that_code_changes_again_and_again_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    change(1)
    CronJob.objects.update(created_at=F("created_at") - DAY, updated_at=F("updated_at") - DAY)
    change(2)
    assert "random" not in caplog.text
    change(3)
    assert "Is its expression random where it is imported?" in caplog.text


def test_a_schedule_that_code_changes_once_a_day_is_not_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for minute in range(4):
        change(minute)
        CronJob.objects.update(created_at=F("created_at") - DAY, updated_at=F("updated_at") - DAY)
    assert "random" not in caplog.text

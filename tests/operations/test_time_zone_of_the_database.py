"""A connection with a `TIME_ZONE` that has daylight saving time, in the night of the change.

On 2026-10-25 at 01:00 UTC clocks in Berlin go back from 3 to 2: three hours there are two by the
clock. Its times are of the same time zone, and Python subtracts these by the clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connections
from django.test import override_settings
from django.utils import timezone

from django_ojs.extensions.cron import operations as cron
from django_ojs.extensions.cron.operations import schedule
from django_ojs.operations.maintenance import mode
from django_ojs.reports import latest_runs
from tests.admin.users import root
from tests.command_line.run import ojs as run
from tests.factories import WORKER, WorkerFactory, in_state, jobs
from tests.http.api import Api
from tests.model_factories import AttemptFactory
from tests.operations.cron.scenes import register

pytestmark = pytest.mark.django_db

HOURS = timedelta(hours=3)
BEFORE = datetime(2026, 10, 24, 23, 15, tzinfo=UTC)
AFTER = BEFORE + HOURS


@pytest.fixture
def berlin() -> Iterator[None]:
    connection = connections["default"]

    def use(name: str | None) -> None:
        connection.settings_dict["TIME_ZONE"] = name
        for cached in ("timezone", "timezone_name"):
            connection.__dict__.pop(cached, None)
        connection.ensure_timezone()

    before = connection.settings_dict["TIME_ZONE"]
    use("Europe/Berlin")
    yield
    use(before)


@pytest.mark.usefixtures("berlin")
def test_durations_over_the_change_are_those_that_passed() -> None:
    WorkerFactory()
    job = in_state("completed")
    jobs().filter(pk=job.pk).update(
        created_at=BEFORE - HOURS,
        enqueued_at=BEFORE,
        started_at=AFTER,
        finished_at=AFTER + timedelta(minutes=1),
        worker_id=WORKER,
        run=2,
        attempt=2,
    )
    busy = {"type": "Busy", "message": "", "retryable": True}
    AttemptFactory(job=job, worker_id=WORKER, started_at=BEFORE, finished_at=AFTER, error=busy)
    stored = jobs().get(pk=job.pk)
    assert str(stored.started_at.tzinfo) == "Europe/Berlin"
    assert stored.started_at - stored.enqueued_at == timedelta(hours=2)  # What this is about.
    assert stored.waited == HOURS
    page = root().get(f"/admin/django_ojs/job/{job.pk}/change/").content.decode()
    # Each as the whole text of a cell: an age ("30 d 2 h ago") depends on the hour of the day.
    assert page.count(">3\N{NARROW NO-BREAK SPACE}h<") >= 2, page
    assert ">2\N{NARROW NO-BREAK SPACE}h<" not in page
    shown = run("show", job.pk).out
    failed = next(line.split() for line in shown.splitlines() if " failed " in line)
    # Its age may have hours, too.
    assert failed[failed.index("ago") + 1] == "3h", shown
    lasted = [each.lasted for each in latest_runs.of(WORKER)]
    assert HOURS in lasted
    history = str(Api().get(f"jobs/{job.pk}/history").ok())
    assert f"'duration_ms': {HOURS // timedelta(milliseconds=1)}" in history


@pytest.mark.usefixtures("berlin")
def test_a_time_after_another_one_is_as_far_from_it_as_said() -> None:
    # Over some of these the clocks change, whatever the day is. On SQLite Django's Now() is in UTC.
    for days in (100, 200, 300) if connections["default"].vendor == "postgresql" else ():
        before = timezone.now()
        status = mode.enable(estimated_duration=timedelta(days=days))
        assert status.estimated_end is not None
        ends = status.estimated_end - timedelta(days=days)
        assert abs(ends - before) < timedelta(minutes=30)
    mode.disable()
    # Half an hour after what the clocks show twice has begun.
    ended = BEFORE + timedelta(hours=1)
    job = in_state("completed")
    jobs().filter(pk=job.pk).update(created_at=ended, enqueued_at=ended, finished_at=ended)
    with override_settings(OJS={"KEEP_COMPLETED": HOURS}):
        page = root("ann").get(f"/admin/django_ojs/job/{job.pk}/change/").content.decode()
    assert (ended + HOURS).strftime("%Y-%m-%d %H:%M:") in page
    due = register("hourly", "@every 4h")
    due.next_run_at = AFTER
    due.save()
    page = root().get("/admin/ojs_cron/cronjob/hourly/change/").content.decode()
    assert AFTER.strftime("%Y-%m-%d %H:%M:") in page


@pytest.mark.usefixtures("berlin")
def test_an_interval_counts_the_hour_that_the_clock_shows_twice() -> None:
    due = register("half", "@every 30m")
    due.next_run_at = BEFORE
    due.save()
    due_at = cron.get("half").next_run_at
    assert due_at is not None
    passed = schedule.passed("@every 30m", "UTC", due_at, AFTER.astimezone(due_at.tzinfo))
    assert passed.missed == 6
    assert passed.next.due_at == AFTER + timedelta(minutes=30)

"""Cron jobs of every second, whose schedulers are killed again and again: each time runs once."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from django_ojs.extensions.cron import operations as cron
from django_ojs.extensions.cron.models import CronJob, CronRun
from tests import fork_server
from tests.factories import jobs
from tests.faults.conftest import FULL, Report
from tests.operations.cron.scenes import register
from tests.worker.waiting import BOUND

CRON_JOBS = 200
SCHEDULERS = 3
KILLS = 40 if FULL else 8
#: Seconds between two kills.
GAP = 0.4

_SECOND = timedelta(seconds=1)
_SCHEDULE = """
import random, time
import django
django.setup()
from django_ojs.extensions.cron import operations as cron
while True:
    cron.fire_due(50)
    time.sleep(random.uniform(0, 0.05))
"""


@pytest.mark.storm
def test_each_time_of_each_cron_job_runs_once_though_schedulers_are_killed(
    process_environment: dict[str, str], report: Report, seed: int
) -> None:
    random.seed(seed)
    for n in range(CRON_JOBS):
        register(f"c{n}", "* * * * * *", overlap_policy="allow")
    began = datetime.now(UTC).replace(microsecond=0)
    CronJob.primary.update(due_at=began, next_run_at=began)
    running: list[subprocess.Popen[str]] = []
    killed = 0
    try:
        while killed < KILLS:
            while len(running) < SCHEDULERS:
                running.append(
                    fork_server.popen([sys.executable, "-c", _SCHEDULE], env=process_environment)
                )
            time.sleep(random.uniform(0, 2 * GAP))
            runs = CronRun.primary.count()
            deadline = time.monotonic() + BOUND
            while CronRun.primary.count() == runs:
                assert time.monotonic() < deadline, "no scheduler fires"
                time.sleep(random.uniform(0, 0.02))
            victim = running.pop(random.randrange(len(running)))
            victim.kill()
            victim.wait(BOUND)
            killed += 1
    finally:
        for process in running:
            process.kill()
            process.wait(BOUND)
    while cron.fire_due():
        if not CronJob.primary.filter(due_at__lte=datetime.now(UTC) - 2 * _SECOND).exists():
            break
    _check(began)
    report(f"{CronRun.primary.count():,} runs by schedulers of which {killed} were killed")


def _check(began: datetime) -> None:
    times = Counter(CronRun.primary.values_list("name", "scheduled_at"))
    assert [which for which, number in times.items() if number > 1] == []
    by_name = Counter(name for name, _ in times)
    stored = Counter(job.meta["cron_name"] for job in jobs().only("meta"))
    assert stored == by_name
    assert set(CronRun.primary.values_list("job_id", flat=True)) == set(
        jobs().values_list("pk", flat=True)
    )
    for row in CronJob.primary.all():
        assert row.run_count == by_name[row.name]
        assert row.due_at is not None
        # Each second until the next time has a run, or was missed while no scheduler came to it.
        assert row.run_count + row.missed_count == (row.due_at - began) // _SECOND

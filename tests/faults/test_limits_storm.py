"""A queue with limits, whose workers are killed: never above a limit, and nothing is lost."""

from __future__ import annotations

import os

import pytest

from django_ojs.models import Attempt
from django_ojs.operations import queues
from example_project.demo import checks
from example_project.demo.snapshot import Period
from tests.databases import ALIASES
from tests.faults import ledger
from tests.faults.conftest import FULL, Report
from tests.faults.site import DRAIN, Site, until
from tests.faults.test_kill_storm import Crew
from tests.worker.waiting import BOUND

JOBS = int(os.environ.get("OJS_FAULTS_LIMITED_JOBS") or (3_000 if FULL else 300))
KILLS = int(os.environ.get("OJS_FAULTS_KILLS") or (50 if FULL else 3))
#: Two processes of four threads each would run more jobs at once, and start more in a second.
AT_ONCE, PER_SECOND = 5, 30
LONGEST = BOUND + KILLS * 16 + 2 * JOBS / PER_SECOND

pytestmark = [
    pytest.mark.storm,
    pytest.mark.django_db(transaction=True, databases=ALIASES),
    pytest.mark.timeout(LONGEST + 900),
]


def test_the_limits_of_a_queue_hold_though_workers_are_killed(
    site: Site, report: Report, seed: int
) -> None:
    report(f"seed {seed}, {JOBS} jobs, {KILLS} kills")
    queues.configure(
        "default",
        {"concurrency": AT_ONCE, "rate_limit": {"limit": PER_SECOND, "period": "PT1S"}},
    )
    crew = Crew(site)
    site.enqueue(JOBS, milliseconds=100)
    for number in range(1, KILLS + 1):
        due = JOBS * (number - site.dice.random()) / (KILLS + 1)
        until(lambda due=due: ledger.count("done") >= due, within=30)  # type: ignore[misc]  # mypy has no inference for a default
        crew.kill_one()
    site.enqueued(LONGEST)
    site.drained(LONGEST + DRAIN)

    runs = [
        *site.jobs.values_list("started_at", "finished_at"),
        # The run of a killed worker counts until its jobs are taken back.
        *Attempt.objects.values_list("started_at", "finished_at"),
    ]
    periods = [Period(started_at=start, ended_at=end) for start, end in runs if start and end]
    at_once, in_a_second = checks.most_at_once(periods), checks.most_in_a_second(periods)
    verdict = site.verdict()
    report(f"{verdict.line}; at most {at_once} at once, {in_a_second} started in one second")
    verdict.good()
    assert len(periods) == len(runs) >= JOBS
    assert at_once == AT_ONCE
    assert in_a_second <= PER_SECOND
    site.completed_once()

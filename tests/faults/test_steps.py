"""Jobs with steps in processes that are killed: what is stored is not done again."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest

from django_ojs.extensions import steps
from django_ojs.models import Job
from django_ojs.operations import queues
from tests.databases import ALIASES
from tests.faults import ledger
from tests.faults.checker import Fault
from tests.faults.conftest import FULL, Report
from tests.faults.site import DRAIN, Site, until
from tests.faults.test_kill_storm import Crew
from tests.testapp import fault_jobs as handlers
from tests.testapp.models import Thing
from tests.worker.acceptance.ledger import becomes, stored

pytestmark = [
    pytest.mark.smoke,
    pytest.mark.django_db(transaction=True, databases=ALIASES),
    pytest.mark.slow,
]

JOBS = int(os.environ.get("OJS_FAULTS_JOBS") or (1_000 if FULL else 60))
KILLS = int(os.environ.get("OJS_FAULTS_KILLS") or (30 if FULL else 3))

#: The steps of `faults.steps`, by their numbers. Those of `steps.run` have their effects at once.
STEPS = ("charge", "reserve", "nap", "reserved", "ship")
RUN = ("charge", "ship")


def effects(job: str) -> Counter[str]:
    """How often the functions of the steps were called."""
    return Counter(line.event for line in ledger.lines() if line.job == job and line.event in RUN)


@pytest.mark.parametrize("where", ["storing step", "stored step"])
@pytest.mark.parametrize("number", range(len(STEPS)), ids=STEPS)
def test_killed_at_a_step_only_that_one_is_done_again(
    site: Site, tmp_path: Path, number: int, where: str
) -> None:
    job = stored(handlers.stepped.enqueue())
    flag = tmp_path / "killed"
    site.start(sabotage={"die": where, "step": number, "flag": str(flag)})
    site.drained()
    site.faults.append(Fault(kind="kill", pid=int(flag.read_text())))
    job.refresh_from_db()
    assert job.state == "completed"
    # An INSERT by itself is committed when it returns; that of SQLite when its cursor is closed.
    again = Counter(RUN)
    is_twice = where == "storing step" and STEPS[number] in RUN
    again.update([STEPS[number]] if is_twice else [])
    assert effects(str(job.pk)) == again
    assert Thing.objects.filter(name=f"effect {job.pk}").count() == 1
    charged, reserved, signalled, shipped = job.result
    assert charged <= reserved == signalled <= shipped
    assert job.attempts.filter(outcome="lost").count() == 1


def test_jobs_that_wait_hold_no_slot_and_no_place_of_a_limit(site: Site, report: Report) -> None:
    queues.configure("default", {"concurrency": 1})
    waiting = [stored(handlers.waits.enqueue("all")) for _ in range(20)]
    other = stored(handlers.effect.enqueue())
    site.start("--threads", "1")
    becomes(other, "completed")
    for job in waiting:
        becomes(job, "scheduled")
        assert (job.worker_id, job.attempt, job.spent) == (None, 1, 0)
    steps.signal("go", "all", time.monotonic())
    site.drained()
    seconds = sorted(Job.objects.get(pk=job.pk).result for job in waiting)
    report(
        f"from a signal to its waiter: {seconds[0] * 1000:.0f} ms, to the 20th {seconds[-1]:.2f} s"
    )
    assert len(ledger.starts()) == 2 * len(waiting) + 1


def test_a_storm_of_kills_over_jobs_with_steps(site: Site, report: Report, seed: int) -> None:
    report(f"seed {seed}, {JOBS} jobs with steps, {KILLS} kills")
    crew = Crew(site)
    jobs = [stored(handlers.stepped.enqueue(30)) for _ in range(JOBS)]
    for number in range(1, KILLS + 1):
        due = JOBS * (number - site.dice.random()) / (KILLS + 1)
        until(lambda due=due: ledger.count("done") >= due, within=60)  # type: ignore[misc]  # mypy has no inference for a default
        crew.kill_one()
    site.drained(DRAIN + KILLS * 2)
    lost = sum(job.attempts.filter(outcome="lost").count() for job in jobs)
    twice = 0
    for job in jobs:
        job.refresh_from_db()
        assert job.state == "completed"
        called = effects(str(job.pk))
        again = sum(called.values()) - len(RUN)
        # A function is called again only where a kill fell between its effect and its commit.
        assert set(called) == set(RUN)
        assert again <= job.attempts.filter(outcome="lost").count()
        twice += again
    things = Counter(Thing.objects.values_list("name", flat=True))
    assert things == Counter({f"effect {job.pk}": 1 for job in jobs})
    report(f"{lost} runs were lost, {twice} effects of run steps were repeated, 0 of atomic ones")

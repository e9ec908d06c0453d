"""Workflows whose workers are killed: each step once to its end, each callback once, none stuck."""

from __future__ import annotations

import os

import pytest

from django_ojs.extensions.workflows.models import EndedWorkflowJob, Workflow, WorkflowStep
from django_ojs.models import Job
from tests.databases import ALIASES
from tests.faults import ledger
from tests.faults.conftest import FULL, Report
from tests.faults.site import Site, until
from tests.faults.test_kill_storm import Crew
from tests.operations.workflows.scenes import batch, chain, create, group, job
from tests.worker.waiting import BOUND, eventually

WORKFLOWS = int(os.environ.get("OJS_FAULTS_WORKFLOWS") or (500 if FULL else 20))
KILLS = int(os.environ.get("OJS_FAULTS_KILLS") or (50 if FULL else 3))
#: Each kill may spend an attempt, and no job is to run out of them.
PATIENT = {"max_attempts": 100, "initial_interval": "PT0.05S", "max_interval": "PT0.5S"}
#: Jobs of each workflow that run, of 9 steps with a job: one callback is not needed.
STEPS = 8
LONGEST = BOUND + KILLS * 16 + WORKFLOWS

pytestmark = [
    pytest.mark.storm,
    pytest.mark.django_db(transaction=True, databases=ALIASES),
    pytest.mark.timeout(LONGEST + 900),
]


def work() -> dict[str, object]:
    return job("faults.effect", 20, retry=PATIENT)


@pytest.mark.requirement("WF-18")
def test_each_step_of_each_workflow_is_completed_once_though_workers_are_killed(
    site: Site, report: Report, seed: int
) -> None:
    report(f"seed {seed}, {WORKFLOWS} workflows, {KILLS} kills")
    callbacks = {name: work() for name in ("on_complete", "on_success", "on_failure")}
    shape = chain(work(), batch(group(work(), work()), work(), **callbacks), work(), work())
    crew = Crew(site)
    created = [create(shape).pk for _ in range(WORKFLOWS)]
    for number in range(1, KILLS + 1):
        due = WORKFLOWS * STEPS * (number - site.dice.random()) / (KILLS + 1)
        until(lambda due=due: ledger.count("done") >= due, within=30)  # type: ignore[misc]  # mypy has no inference for a default
        crew.kill_one()
    running = Workflow.primary.filter(state="running")
    eventually(lambda: not running.exists(), "no workflow is stuck", within=LONGEST, pause=0.1)

    assert set(Workflow.primary.values_list("pk", "state")) == {
        (key, "completed") for key in created
    }
    steps = WorkflowStep.primary.filter(type__isnull=False)
    assert steps.filter(state="completed").count() == WORKFLOWS * STEPS
    assert set(steps.exclude(state="completed").values_list("callback", "state")) == {
        ("on_failure", "skipped")
    }
    # One job for each step, and none for the callback that was not needed.
    ran = set(steps.filter(state="completed").values_list("pk", flat=True))
    assert set(Job.primary.values_list("pk", flat=True)) == ran
    assert set(Job.primary.values_list("state", flat=True)) == {"completed"}
    eventually(lambda: not EndedWorkflowJob.primary.exists(), "the journal is empty")
    verdict = site.verdict(stored=ran)
    report(verdict.line)
    verdict.good()

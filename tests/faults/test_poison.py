"""A job that kills its process: the queue goes on, and no other job loses an attempt."""

from __future__ import annotations

import pytest

import django_ojs as ojs
from django_ojs.models import Attempt, Job
from django_ojs.spec.isolation import ISOLATED_AFTER
from tests.databases import ALIASES
from tests.faults import ledger
from tests.faults.checker import Fault, check
from tests.faults.conftest import FULL, Report
from tests.faults.site import DRAIN, Site

JOBS = 20_000 if FULL else 1_000
MILLISECONDS = 5

pytestmark = [
    pytest.mark.sized,
    pytest.mark.django_db(transaction=True, databases=ALIASES),
    pytest.mark.slow,
]


def rates_of(site: Site, poisons: int) -> list[float]:
    """Drain a queue. Return jobs a second of those that no process lost, and of all."""
    ledger.drop()
    ledger.create()
    Job.objects.all().delete()
    requests = [ojs.request("faults.effect", [MILLISECONDS]) for _ in range(JOBS)]
    for number in range(poisons):
        requests.insert(JOBS // 8 * (number + 1), ojs.request("faults.poison"))
    stored = ojs.enqueue_batch(requests)
    tree = site.start("--threads", "10")
    site.drained(DRAIN + JOBS / 20)
    tree.kill()
    good = {str(job.id) for job in stored if job.type == "faults.effect"}
    lines = [line for line in ledger.lines() if line.job in good]
    assert {line.job for line in lines if line.event == "done"} == good
    lost = {str(key) for key in Attempt.objects.values_list("job_id", flat=True)}
    others = [line for line in lines if line.job not in lost]
    return [
        len({line.job for line in part}) / (part[-1].at - part[0].at) for part in (others, lines)
    ]


def test_beside_a_poison_job_the_queue_goes_on_and_no_job_loses_an_attempt(
    site: Site, report: Report
) -> None:
    if FULL:
        report(f"{JOBS} jobs of {MILLISECONDS} ms: {rates_of(site, poisons=0)[0]:.0f} jobs/s")
    poisoned, with_lost = rates_of(site, poisons=1)
    report(
        f"{JOBS} jobs of {MILLISECONDS} ms, and a poison job: {poisoned:.0f} jobs/s, and "
        f"{with_lost:.0f} jobs/s with those that ran again"
    )
    poison, good = (
        Job.objects.filter(type="faults.poison"),
        Job.objects.exclude(type="faults.poison"),
    )
    for job in poison:
        assert (job.state, job.dead_letter, job.spent) == ("discarded", True, 3)
        assert job.lost_with_others <= ISOLATED_AFTER
    for job in good:
        assert (job.state, job.spent) == ("completed", 1)
    everything = {str(key) for key in Job.objects.values_list("pk", flat=True)}
    verdict = check(
        attempted=everything,
        acknowledged={str(job.pk) for job in good},
        starts=ledger.starts(),
        done=ledger.done(),
        # What ran twice was lost with a process, and says so in its history.
        faults=[
            Fault(kind="lost", job=str(attempt.job_id), run=attempt.run)
            for attempt in Attempt.objects.filter(outcome="lost")
        ],
    )
    report(verdict.line)
    verdict.good()

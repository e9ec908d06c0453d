"""A job that takes its process down: the jobs beside it keep their attempts."""

from __future__ import annotations

import pytest

from django_ojs.models import Job
from django_ojs.spec.isolation import ISOLATED_AFTER
from tests.testapp import worker_jobs as handlers
from tests.worker.acceptance.conftest import Start
from tests.worker.acceptance.ledger import ALIASES, becomes, history, release, runs, started, stored
from tests.worker.waiting import eventually

pytestmark = [pytest.mark.django_db(transaction=True, databases=ALIASES), pytest.mark.slow]

DIED = "worker_death"
#: Attempts of the poison job, which its own losses spend.
ATTEMPTS = 3


def beside(poison: Job, number: int = 3) -> list[Job]:
    """Enqueue jobs that run beside a poison job."""
    return [stored(handlers.wait.enqueue()) for _ in range(number)]


def unspent(job: Job) -> int:
    """Return how many lost runs spent no attempt."""
    messages = job.attempts.values_list("error__message", flat=True)
    return sum("spends no attempt" in message for message in messages)


@pytest.mark.smoke
@pytest.mark.parametrize("how", ["exit", "segfault", "kill"])
def test_a_job_that_kills_its_process_costs_the_jobs_beside_it_no_attempt(
    start: Start, how: str
) -> None:
    poison = stored(handlers.poison.enqueue(how))
    others = beside(poison)
    tree = start("--threads", "4").ready()
    for job in (poison, *others):
        started(job)
    release(poison)
    becomes(poison, "discarded")
    # It ran twice beside others, and then alone until its attempts were spent.
    assert poison.dead_letter
    assert (poison.attempt, poison.spent) == (ISOLATED_AFTER + ATTEMPTS, ATTEMPTS)
    assert {outcome for _, outcome, _ in history(poison)} == {"lost"}
    assert unspent(poison) == ISOLATED_AFTER
    for job in others:
        release(job)
    for job in others:
        becomes(job, "completed")
        assert job.spent == 1
        assert [(outcome, kind) for _, outcome, kind in history(job)] == [("lost", DIED)] * unspent(
            job
        )
        assert [attempt for attempt, _ in runs(job)] == sorted({a for a, _ in runs(job)})
    assert "died with 4 jobs. They run again without spending an attempt" in tree.log
    assert "; 4 of them alone, to find the job that kills its worker" in tree.log
    # The processes that it killed did not keep the queue waiting.
    eventually(lambda: len(tree.workers()) == 1, "only the shared process is left")

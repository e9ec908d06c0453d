"""A job that takes its process down: the jobs beside it keep their attempts."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from django.db import connection

from django_ojs.models import Job
from django_ojs.spec.isolation import ISOLATED_AFTER
from tests.testapp import worker_jobs as handlers
from tests.worker.acceptance.conftest import Start
from tests.worker.acceptance.ledger import ALIASES, becomes, history, release, runs, started, stored
from tests.worker.waiting import eventually

pytestmark = [pytest.mark.django_db(transaction=True, databases=ALIASES), pytest.mark.slow]

DIED = "worker_death"
#: With less, a busy machine keeps a process silent for three beats now and then; then it is dead,
#: and the only job that it runs spends an attempt.
BEATS = {"HEARTBEAT_INTERVAL": 5}
#: Attempts of the poison job, which its own losses spend.
ATTEMPTS = 3
#: Where each run of the poison job takes seconds.
ONE_ATTEMPT = {"max_attempts": 1}


def beside(poison: Job, number: int = 3) -> list[Job]:
    """Enqueue jobs that run beside a poison job."""
    return [stored(handlers.wait.enqueue()) for _ in range(number)]


def unspent(job: Job) -> int:
    """Return how many lost runs spent no attempt."""
    messages = job.attempts.values_list("error__message", flat=True)
    return sum("spends no attempt" in message for message in messages)


def completed_at_first_attempt(job: Job) -> None:
    """Wait until a job is completed. It spent one attempt and none failed.

    Its run may be a later one: a claimed job that found no slot for a while is claimed again.
    """
    assert becomes(job, "completed").spent == 1
    assert history(job) == []


@pytest.mark.smoke
@pytest.mark.parametrize("how", ["exit", "segfault", "kill"])
def test_a_job_that_kills_its_process_costs_the_jobs_beside_it_no_attempt(
    start: Start, how: str
) -> None:
    poison = stored(handlers.poison.enqueue(how))
    others = beside(poison)
    tree = start("--threads", "4", ojs=BEATS).ready()
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
    # How many: in the second process it may die before the others have started.
    assert " of them alone, to find the job that kills its worker" in tree.log
    # The processes that it killed did not keep the queue waiting.
    eventually(lambda: len(tree.workers()) == 1, "only the shared process is left")


@pytest.mark.parametrize(
    "how",
    [
        "hold the GIL",
        # To the supervisor it is the same; a core is busy until it kills the process.
        pytest.param("catastrophic regular expression", marks=pytest.mark.storm),
    ],
)
def test_a_process_whose_interpreter_is_held_is_killed_and_its_other_jobs_run_again(
    start: Start, how: str
) -> None:
    poison = stored(handlers.poison.options(retry=ONE_ATTEMPT).enqueue(how))
    others = beside(poison)
    tree = start("--threads", "4", ojs={"HEARTBEAT_INTERVAL": 5, "STALL_TIMEOUT": 3}).ready()
    for job in (poison, *others):
        started(job)
    release(poison)
    becomes(poison, "discarded")
    assert (poison.dead_letter, poison.spent) == (True, 1)
    for job in others:
        release(job)
        assert becomes(job, "completed").spent == 1
    assert "has run no Python code for 3 s: a handler keeps the GIL" in tree.log
    assert str(poison.pk) in tree.log


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize("how", ["allocate", "allocate all"])
def test_a_job_that_takes_all_memory_costs_the_jobs_beside_it_no_attempt(
    start: Start, how: str
) -> None:
    poison = stored(handlers.poison.options(timeout=5, retry=ONE_ATTEMPT).enqueue(how))
    # A query of theirs might get no memory, which their driver reports as an error of its own.
    others = [stored(handlers.rest.enqueue(3)) for _ in range(3)]
    start("--threads", "4", ojs=BEATS).ready()
    for job in (poison, *others):
        started(job)
    release(poison)
    becomes(poison, "discarded")
    assert (poison.dead_letter, poison.spent) == (True, 1)
    for job in others:
        assert becomes(job, "completed").spent == 1


def test_results_that_cannot_be_stored_fail_their_jobs_and_no_others(start: Start) -> None:
    kinds = ["NUL", "lone surrogate", "NaN", "too deep", "very deep", "no JSON", "huge integer"]
    poisons = [stored(handlers.poison.enqueue(kind)) for kind in kinds]
    others = [stored(handlers.quick.enqueue(number)) for number in range(50)]
    tree = start("--threads", "10").ready()
    children = tree.children()
    for poison in poisons:
        release(poison)
    for poison in poisons:
        becomes(poison, "discarded")
        assert poison.dead_letter
        # Another run would have the same result, and its effects once more.
        assert [outcome for _, outcome, _ in history(poison)] == ["failed"]
    for job in others:
        completed_at_first_attempt(job)
    assert tree.children() == children


@pytest.mark.postgresql  # One constraint is enough to show it.
def test_a_result_that_the_database_rejects_fails_its_job_and_no_other(start: Start) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE ojs_job ADD CONSTRAINT no_seven CHECK (result::text <> '7')")
    try:
        once = handlers.quick.options(retry=ONE_ATTEMPT)
        jobs = [stored(once.enqueue(number)) for number in range(50)]
        start("--threads", "10").ready()
        rejected = jobs.pop(7)
        becomes(rejected, "discarded")
        [(_, outcome, kind)] = history(rejected)
        assert (outcome, kind) == ("failed", "result_rejected")
        for job in jobs:
            completed_at_first_attempt(job)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE ojs_job DROP CONSTRAINT no_seven")


def test_a_process_that_is_stopped_is_not_killed_for_its_silence(start: Start) -> None:
    poison = stored(handlers.poison.options(retry=ONE_ATTEMPT).enqueue("hold the GIL"))
    options = ("--processes", "2", "--threads", "1")
    tree = start(*options, ojs={"HEARTBEAT_INTERVAL": 5, "STALL_TIMEOUT": 2}).ready(2)
    started(poison)
    silent = tree.child_of(poison)
    (stopped,) = (pid for pid in tree.children() if pid != silent)
    os.kill(stopped, signal.SIGSTOP)
    release(poison)
    # The one that holds the lock was silent for less time than the other one was stopped.
    tree.says(f"(pid {silent}) died: killed by SIGKILL")
    becomes(poison, "discarded")
    assert stopped in tree.children()
    os.kill(stopped, signal.SIGCONT)
    note = stored(handlers.note.enqueue())
    becomes(note, "completed")
    assert f"(pid {stopped})" not in tree.log


def test_under_debug_a_held_interpreter_is_reported_and_a_stop_ends_it(start: Start) -> None:
    poison = stored(handlers.poison.enqueue("hold the GIL"))
    ojs = {"HEARTBEAT_INTERVAL": 5, "STALL_TIMEOUT": 2}
    tree = start("--threads", "1", ojs=ojs, OJS_TEST_DEBUG="1").ready()
    started(poison)
    release(poison)
    tree.says("It is not killed while DEBUG is on")
    assert becomes(poison, "active").run == 1
    tree.signal(signal.SIGTERM)
    assert tree.ends() == 0
    assert becomes(poison, "available").spent == 1

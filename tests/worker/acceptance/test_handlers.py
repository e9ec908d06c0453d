"""What a worker does with each kind of handler, in one go: real processes, both databases."""

from __future__ import annotations

from typing import Any

import pytest

import django_ojs as ojs
from django_ojs.models import Job, Worker
from tests.testapp import worker_jobs as handlers
from tests.testapp.jobs import echo
from tests.testapp.models import Thing
from tests.worker.acceptance.conftest import Start
from tests.worker.acceptance.ledger import ALIASES, becomes, history, marks, runs, stored
from tests.worker.waiting import eventually

pytestmark = [pytest.mark.django_db(transaction=True, databases=ALIASES), pytest.mark.slow]


@pytest.mark.smoke
@pytest.mark.usefixtures("new_interpreters")
def test_once_runs_every_kind_of_handler_to_its_end(start: Start) -> None:
    plain = stored(echo.enqueue({"price": "1.10"}, None, "ä☃"))
    context = stored(handlers.note.enqueue("hello"))
    shout = stored(ojs.enqueue("testapp.shout", ["quiet"]))
    atomic = stored(handlers.transfer.enqueue("kept"))
    failing = handlers.transfer.options(retry=ojs.RetryPolicy(max_attempts=1))
    undone = stored(failing.enqueue("undone", "raise"))
    rejected = stored(failing.enqueue("rejected", "broken reference"))
    unfit = stored(ojs.enqueue("testapp.add", ["one", "two", "three", "four"]))
    assert start("--once", "--threads", "4").ends() == 0
    assert becomes(plain, "completed").result == [{"price": "1.10"}, None, "ä☃"]
    assert becomes(context, "completed").result == "hello"
    assert marks(context) == ["hello"]
    assert runs(context, "hello") == [(1, 1)]
    assert becomes(shout, "completed").result == "QUIET"
    assert becomes(atomic, "completed").result == "kept"
    # What a failed atomic handler wrote is gone, that it ran is not forgotten.
    assert list(Thing.objects.values_list("name", flat=True)) == ["kept"]
    for job, error in ((undone, "ValueError"), (rejected, "IntegrityError")):
        job.refresh_from_db()
        assert marks(job)[0] == "wrote"
        assert history(job)[0] == (1, "failed", error)
    unfit.refresh_from_db()
    assert unfit.error["type"] == "TypeError"
    assert not Worker.objects.exists()  # It has deregistered.


@pytest.mark.smoke
def test_once_runs_workflows_to_their_ends(start: Start) -> None:
    # The next step is enqueued after the outcome of the one before is stored: no job is left then.
    steps = [handlers.note.s(str(number)) for number in range(4)]
    enqueued = [ojs.chain(*steps[:2], ojs.group(*steps), steps[0]).enqueue() for _ in range(3)]
    assert start("--once", "--threads", "4").ends() == 0
    assert [each.workflow().state for each in enqueued] == ["completed"] * 3


def test_whatever_a_handler_raises_is_its_jobs_failure_and_not_the_workers(start: Start) -> None:
    kinds = ["SystemExit", "KeyboardInterrupt", "GeneratorExit"]
    plain = [stored(handlers.throw.enqueue(kind)) for kind in kinds]
    coroutines = [
        stored(handlers.throw_async.enqueue(kind)) for kind in ("in a task", "in the handler")
    ]
    after = [stored(handlers.note.enqueue()), stored(ojs.enqueue("testapp.shout", ["here"]))]
    tree = start("--once", "--threads", "1")
    assert tree.ends() == 0
    assert [becomes(job, "discarded").error["type"] for job in plain] == kinds
    for job in coroutines:
        assert becomes(job, "discarded").error["type"] == "SystemExit"
    assert [becomes(job, "completed").result for job in after] == ["ran", "HERE"]
    assert "SystemExit: a secret (dead letter after attempt 1)" in tree.log


@pytest.mark.parametrize(
    "handler",
    [handlers.fork, handlers.fork_atomic, handlers.fork_async, handlers.fork_in_thread],
    ids=lambda handler: handler.type,
)
def test_a_process_that_a_handler_forks_does_not_go_on_as_a_second_worker(
    start: Start, handler: Any
) -> None:
    endings = {"return": 0, "raise": 1, "exit": 3}
    first = handler.options(priority=1)
    forking = {stored(first.enqueue(ending, False)): None for ending in endings}
    forking |= {stored(first.enqueue(ending, True)): code for ending, code in endings.items()}
    others = [stored(handlers.note.enqueue(str(number))) for number in range(50)]
    tree = start("--once", "--threads", "2")
    # No process of the tree is left then.
    assert tree.ends() == 0, tree.log
    for job, code in forking.items():
        # One run, whatever its number: a job that waits long for a thread is given back and claimed
        # again.
        assert (becomes(job, "completed").result, len(runs(job))) == (code, 1)
    for number, job in enumerate(others):
        assert (becomes(job, "completed").result, marks(job)) == (str(number), [str(number)])
    assert Thing.objects.count() == 6 * (handler is handlers.fork_atomic)
    assert tree.log.count("LookupError: of the child") == 2


def test_the_queues_are_worked_from_left_to_right_and_others_are_left_alone(start: Start) -> None:
    low = stored(handlers.note.options(queue="low").enqueue())
    high = stored(handlers.note.options(queue="high").enqueue())
    other = stored(handlers.note.options(queue="other").enqueue())
    assert start("--once", "--queues", "high,low", "--threads", "1").ends() == 0
    assert becomes(high, "completed").started_at <= becomes(low, "completed").started_at
    assert becomes(other, "available").run == 0


def test_a_type_that_has_no_handler_is_held_back_unspent_and_logged_once(start: Start) -> None:
    strangers = [stored(ojs.enqueue("worker.unheard_of", ["a secret"])) for _ in range(3)]
    known = stored(handlers.note.enqueue())
    tree = start("--once")
    assert tree.ends() == 0
    assert becomes(known, "completed")
    for job in strangers:
        assert becomes(job, "retryable").spent == 0
        assert history(job) == [(1, "returned", "unknown_job_type")]
    assert tree.log.count("No handler for the job type 'worker.unheard_of'") == 1
    assert "a secret" not in tree.log


def test_work_that_comes_while_the_worker_is_idle_is_found(start: Start) -> None:
    tree = start().ready()
    job = stored(handlers.note.enqueue())
    becomes(job, "completed")
    (worker,) = tree.workers()
    assert (worker.queues, worker.concurrency, worker.state) == (["default"], 10, "running")


@pytest.mark.smoke
def test_two_processes_share_the_work(start: Start) -> None:
    tree = start("--processes", "2", "--threads", "1").ready(2)
    jobs = [stored(handlers.wait.enqueue()) for _ in range(2)]
    for job in jobs:
        eventually(lambda job=job: runs(job), "the job has started")
        job.refresh_from_db()
    assert {job.worker_id for job in jobs} == {worker.pk for worker in tree.workers()}
    assert Job.objects.filter(state="active").count() == 2

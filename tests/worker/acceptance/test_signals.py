"""Signals x what was in flight (graceful-shutdown §4-§7, worker-protocol §7, §9)."""

from __future__ import annotations

import os
import signal

import pytest

from django_ojs.extensions.events.models import Event
from django_ojs.handlers import Handler
from django_ojs.models import Job, Worker
from tests.testapp import worker_jobs as handlers
from tests.worker.acceptance.conftest import Start
from tests.worker.acceptance.ledger import (
    ALIASES,
    becomes,
    history,
    marks,
    release,
    runs,
    started,
    stored,
)
from tests.worker.processes import Tree
from tests.worker.waiting import eventually

pytestmark = [pytest.mark.django_db(transaction=True, databases=ALIASES), pytest.mark.slow]

TERM, INT, TSTP, CONT = signal.SIGTERM, signal.SIGINT, signal.SIGTSTP, signal.SIGCONT
#: Over before the suite is; no test that expects a job to be done waits for it.
SHORT, LONG = "1", "60"


def reports(tree: Tree, state: str) -> None:
    """Wait until all worker processes report a state in their beats."""
    eventually(
        lambda: {worker.state for worker in tree.workers()} == {state},
        f"the worker reports {state}; it said:\n{tree.log}",
    )


@pytest.mark.parametrize("has_job", [True, False])
def test_a_worker_that_is_stopped_says_first_that_it_claims_no_more(
    start: Start, has_job: bool
) -> None:
    job = stored(handlers.wait.enqueue()) if has_job else None
    tree = start("--grace", LONG).ready()
    if job is not None:
        started(job)
    tree.signal(TERM)
    if job is not None:
        # While its job still runs.
        quiet = Event.objects.filter(type="worker.quiet")
        eventually(quiet.exists, f"it says so; it said:\n{tree.log}")
        assert quiet.get().data["active_jobs"] == 1
        release(job)
    assert tree.ends() == 0
    told = Event.objects.filter(type__startswith="worker.").order_by("pk")
    assert [each.type for each in told] == ["worker.started", "worker.quiet", "worker.stopped"]


@pytest.mark.parametrize("numbers", [[TERM], [INT], [TERM, TERM], [INT, INT], [TSTP, TERM]])
def test_an_idle_worker_ends_well(start: Start, numbers: list[signal.Signals]) -> None:
    tree = start("--grace", LONG).ready()
    for number in numbers:
        tree.signal(number)
    assert tree.ends() == 0
    assert not Worker.objects.exists()
    assert "stopped: 0 completed, 0 failed" in tree.log


@pytest.mark.parametrize(
    ("number", "handler"),
    [(TERM, handlers.wait), (INT, handlers.wait), (TERM, handlers.wait_async)],
)
def test_a_running_job_is_waited_for_and_no_other_is_begun(
    start: Start, number: signal.Signals, handler: Handler[..., object]
) -> None:
    job = stored(handler.enqueue())
    tree = start("--grace", LONG, "--threads", "2").ready()
    started(job)
    tree.signal(number)
    reports(tree, "terminate")
    late = stored(handlers.note.enqueue())
    # Beats go on while it drains: it is not taken for dead.
    seen_at = Worker.objects.get().seen_at
    eventually(lambda: Worker.objects.get().seen_at > seen_at, "it goes on beating")
    release(job)
    assert tree.ends() == 0
    assert becomes(job, "completed").attempt == 1
    assert history(job) == []
    assert becomes(late, "available").run == 0


@pytest.mark.parametrize(
    ("number", "handler"),
    [(TERM, handlers.wait), (INT, handlers.wait), (TERM, handlers.wait_async)],
)
def test_a_job_longer_than_the_grace_goes_back_and_spends_no_attempt(
    start: Start, number: signal.Signals, handler: Handler[..., object]
) -> None:
    job = stored(handler.enqueue())
    tree = start("--grace", SHORT).ready()
    started(job)
    tree.signal(number)
    assert tree.ends() == 0
    goes_back_unspent(job)


def test_a_second_signal_ends_the_grace_at_once(start: Start) -> None:
    job = stored(handlers.wait.enqueue())
    tree = start("--grace", LONG).ready()
    started(job)
    tree.signal(TERM)
    reports(tree, "terminate")
    # One that comes within a second of the first is the same request by another way.
    eventually(lambda: (tree.signal(TERM), "Stopping now" in tree.log)[1], "it stops at once")
    assert tree.ends() == 0
    goes_back_unspent(job)


@pytest.mark.parametrize("number", [TERM, INT])
@pytest.mark.parametrize("first", ["the supervisor", "the processes"])
def test_a_signal_to_every_process_leaves_them_the_grace_period(
    start: Start, number: signal.Signals, first: str
) -> None:
    # As platforms do, and `kill $(pgrep -f ojs_worker)`: the supervisor forwards its own as well.
    jobs = [stored(handlers.wait.enqueue()), stored(handlers.wait_async.enqueue())]
    tree = start("--grace", LONG, "--processes", "2", "--threads", "1").ready(2)
    for job in jobs:
        started(job)
    members = [tree.pid, *tree.children()]
    for pid in members if first == "the supervisor" else reversed(members):
        os.kill(pid, number)
    reports(tree, "terminate")
    for job in jobs:
        release(job)
        assert becomes(job, "completed").attempt == 1
    assert tree.ends() == 0
    assert "Stopping now" not in tree.log


@pytest.mark.parametrize("number", [TERM, INT])
def test_a_process_that_its_handler_asks_to_stop_is_replaced(
    start: Start, number: signal.Signals
) -> None:
    # As many as there are processes: nothing would be left of the worker.
    asking = [stored(handlers.stop_process.enqueue(number.value)) for _ in range(2)]
    tree = start("--processes", "2", "--threads", "1").ready(2)
    for job in asking:
        becomes(job, "completed")
    assert becomes(stored(handlers.note.enqueue()), "completed").attempt == 1
    tree.says("has ended, and is replaced")
    assert tree.process.poll() is None
    tree.signal(TERM)
    assert tree.ends() == 0


@pytest.mark.parametrize("reason", ["signal", "--max-jobs", "--max-rss"])
def test_a_process_that_ends_after_a_long_job_is_replaced_before(start: Start, reason: str) -> None:
    long = stored(handlers.wait.enqueue())
    limits = {"signal": (), "--max-jobs": ("--max-jobs", "1"), "--max-rss": ("--max-rss", "1")}
    tree = start("--processes", "1", "--threads", "1", "--grace", LONG, *limits[reason])
    started(long)
    if reason == "signal":
        os.kill(tree.child_of(long), TERM)
    # Another process runs it, beside the first.
    assert becomes(stored(handlers.note.enqueue()), "completed").attempt == 1
    assert becomes(long, "active").attempt == 1
    release(long)
    assert becomes(long, "completed").attempt == 1
    tree.signal(TERM)
    assert tree.ends() == 0


@pytest.mark.smoke
@pytest.mark.usefixtures("new_interpreters")
def test_a_job_that_was_stopped_by_a_shutdown_is_done_by_the_next_worker(start: Start) -> None:
    # Even the last attempt it has: a deployment costs none.
    job = stored(handlers.wait.options(retry={"max_attempts": 1}).enqueue())
    for time in (1, 2):
        tree = start("--grace", "0").ready()
        started(job, time)
        tree.signal(TERM)
        assert tree.ends() == 0
    release(job)
    assert start("--once").ends() == 0
    assert becomes(job, "completed").attempt == 3
    assert history(job) == [(1, "shutdown", "shutdown"), (2, "shutdown", "shutdown")]


@pytest.mark.interrupts
def test_an_atomic_handler_that_is_stopped_by_a_shutdown_leaves_no_row(start: Start) -> None:
    job = stored(handlers.transfer.enqueue("never", "wait"))
    tree = start("--grace", "0").ready()
    eventually(lambda: marks(job) == ["wrote"], "it has written")
    tree.signal(TERM)
    assert tree.ends() == 0
    goes_back_unspent(job)
    assert not handlers.Thing.objects.exists()


@pytest.mark.interrupts
def test_a_thread_that_does_not_hear_does_not_hold_the_shutdown_up(start: Start) -> None:
    job = stored(handlers.deaf.enqueue(handlers.LONGEST))
    tree = start("--grace", SHORT).ready()
    started(job)
    tree.signal(TERM)
    assert tree.ends() == 0
    goes_back_unspent(job)


@pytest.mark.parametrize("resume", [True, False])
def test_a_quiet_worker_finishes_its_job_and_begins_no_other(start: Start, resume: bool) -> None:
    job = stored(handlers.wait.enqueue())
    tree = start("--grace", LONG).ready()
    started(job)
    tree.signal(TSTP)
    reports(tree, "quiet")
    next_one = stored(handlers.note.enqueue())
    release(job)
    becomes(job, "completed")
    # Several beats and polls later it has still not been touched.
    seen_at = Worker.objects.get().seen_at
    eventually(lambda: Worker.objects.get().seen_at > seen_at, "it goes on beating")
    assert becomes(next_one, "available").run == 0
    if resume:
        tree.signal(CONT)
        becomes(next_one, "completed")
        reports(tree, "running")
    tree.signal(TERM)
    assert tree.ends() == 0
    assert becomes(next_one, "completed" if resume else "available")


def test_an_interrupt_from_the_terminal_reaches_a_child_once(start: Start) -> None:
    # Ctrl-C goes to the whole process group, and the supervisor forwards it.
    job = stored(handlers.wait.enqueue())
    tree = start("--grace", LONG).ready()
    started(job)
    os.killpg(tree.pid, INT)
    reports(tree, "terminate")
    release(job)
    assert tree.ends() == 0
    assert becomes(job, "completed").attempt == 1


def test_cont_does_not_bring_back_a_worker_that_ends(start: Start) -> None:
    job = stored(handlers.wait.enqueue())
    tree = start("--grace", LONG).ready()
    started(job)
    tree.signal(TERM)
    reports(tree, "terminate")
    tree.signal(TSTP)
    tree.signal(CONT)
    late = stored(handlers.note.enqueue())
    release(job)
    assert tree.ends() == 0
    assert becomes(job, "completed")
    assert becomes(late, "available").run == 0


def test_all_processes_of_a_worker_end_together(start: Start) -> None:
    jobs = [stored(handlers.wait.enqueue()) for _ in range(2)]
    tree = start("--processes", "2", "--threads", "1", "--grace", SHORT).ready(2)
    for job in jobs:
        started(job)
    tree.signal(TERM)
    assert tree.ends() == 0
    for job in jobs:
        goes_back_unspent(job)


def goes_back_unspent(job: Job) -> None:
    becomes(job, "available")
    assert (job.attempt, job.spent, job.worker_id) == (1, 0, None)
    assert history(job) == [(1, "shutdown", "shutdown")]
    assert runs(job, "done") == []

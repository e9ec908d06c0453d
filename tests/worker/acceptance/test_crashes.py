"""Processes that die: of a kill, or of the job they run. Nothing is lost, and all is explained."""

from __future__ import annotations

import os
import signal

import pytest
from django.db import connection
from django.db.models import QuerySet

from django_ojs.extensions.checkpoints.models import Checkpoint
from django_ojs.models import Job, Worker
from django_ojs.operations import ack, queues
from django_ojs.reports import ended_workers
from django_ojs.spec.errors import ClaimLost
from django_ojs.storage.transitions import Claim
from tests.testapp import worker_jobs as handlers
from tests.testapp.models import Thing
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
from tests.worker.waiting import eventually

pytestmark = [pytest.mark.django_db(transaction=True, databases=ALIASES), pytest.mark.slow]

DIED = "worker_death"


@pytest.mark.smoke
def test_a_killed_process_is_replaced_and_its_job_runs_again_fenced(start: Start) -> None:
    # It beats every ten minutes: nobody could miss the next one, but its supervisor knows.
    job = stored(handlers.wait.enqueue())
    tree = start(ojs={"HEARTBEAT_INTERVAL": 600}).ready()
    started(job)
    victim = tree.child_of(job)
    old = Claim(worker_id=job.worker_id, run=job.run)
    os.kill(victim, signal.SIGKILL)
    started(job, 2)
    eventually(lambda: tree.workers(), "the successor has registered")
    assert tree.child_of(job) != victim
    # What the dead one might still have sent comes too late.
    with pytest.raises(ClaimLost):
        ack.ack(job.pk, claim=old, result="late")
    release(job)
    becomes(job, "completed")
    assert (job.attempt, job.result) == (2, "done")
    assert history(job) == [(1, "lost", DIED)]
    assert f"(pid {victim}) died: killed by SIGKILL" in tree.log
    assert not Worker.objects.filter(pid=victim).exists()
    (died,) = ended_workers.dead()
    assert (died.id, died.how, died.jobs_rescued) == (old.worker_id, "killed by SIGKILL", 1)


@pytest.mark.requirement("DUR-R001")
def test_a_job_of_a_killed_process_continues_at_its_checkpoint(start: Start) -> None:
    job = stored(handlers.rows.enqueue(5))
    tree = start("--threads", "1").ready()
    started(job)
    os.kill(tree.child_of(job), signal.SIGKILL)
    becomes(job, "completed")
    assert (job.attempt, job.result) == (2, 4)
    assert sorted(Thing.objects.values_list("name", flat=True)) == [f"row {n}" for n in range(5)]
    assert not Checkpoint.objects.exists()


def test_another_worker_takes_over_when_a_whole_tree_is_killed(start: Start) -> None:
    job = stored(handlers.wait.enqueue())
    first = start("--processes", "2", "--threads", "1").ready(2)
    started(job)
    second = start()
    second.ready()
    first.kill()
    started(job, 2)
    assert second.child_of(job)
    release(job)
    becomes(job, "completed")
    assert history(job) == [(1, "lost", DIED)]
    eventually(
        lambda: set(Worker.objects.values_list("pid", flat=True)) == set(second.children()),
        "the dead workers are forgotten",
    )


@pytest.mark.parametrize("limit", ["queue", "key"])
def test_a_limit_holds_while_workers_are_killed(start: Start, limit: str) -> None:
    wait = handlers.wait.options(rate_limit={"key": "type:{type}", "concurrency": 2})
    if limit == "queue":
        queues.configure("default", {"concurrency": 2})
        wait = handlers.wait
    waiting = [stored(wait.enqueue()) for _ in range(4)]
    first = start("--processes", "2", "--threads", "4").ready(2)
    eventually(lambda: active() == 2, "the queue is at its limit")
    dead = {job.worker_id for job in running()}
    start("--threads", "4").ready()
    first.kill()
    eventually(
        lambda: active() == 2 and dead.isdisjoint(job.worker_id for job in running()),
        "another worker has taken over",
    )
    for job in waiting:
        release(job)
    eventually(
        lambda: not active() and not Job.objects.exclude(state="completed").exists(),
        "all of them have run",
    )


def running() -> QuerySet[Job]:
    return Job.objects.filter(state="active")


def active() -> int:
    """Return how many jobs are active, which must not be more than two."""
    number = running().count()
    assert number <= 2
    return number


@pytest.mark.postgresql
def test_a_death_is_noticed_by_the_lost_session_long_before_the_missed_beats(
    start: Start,
) -> None:
    # It beats every ten minutes: only the end of its database session can show its death.
    job = stored(handlers.wait.enqueue())
    first = start(ojs={"HEARTBEAT_INTERVAL": 600}).ready()
    started(job)
    eventually(
        lambda: Worker.objects.filter(session_pid__isnull=False).exists(), "its session is known"
    )
    second = start()
    second.ready()
    first.kill()
    started(job, 2)
    release(job)
    assert becomes(job, "completed").attempt == 2
    assert history(job) == [(1, "lost", DIED)]


def test_children_whose_supervisor_was_killed_finish_their_jobs_and_end(start: Start) -> None:
    job = stored(handlers.wait.enqueue())
    tree = start("--processes", "2", "--threads", "1").ready(2)
    started(job)
    os.kill(tree.pid, signal.SIGKILL)
    eventually(
        lambda: tree.log.count("The supervisor has ended; this worker stops.") == 2,
        "both notice that it is gone",
    )
    late = stored(handlers.note.enqueue())
    release(job)
    assert tree.ends() == -signal.SIGKILL
    assert becomes(job, "completed").attempt == 1
    assert becomes(late, "available").run == 0
    assert not Worker.objects.exists()


@pytest.mark.parametrize("code", [0, 1])
def test_a_handler_that_ends_the_process_costs_an_attempt_and_not_the_worker(
    start: Start, code: int
) -> None:
    job = stored(handlers.leave.enqueue(code))
    tree = start("--threads", "1").ready()
    becomes(job, "completed")
    assert (job.attempt, history(job)) == (2, [(1, "lost", DIED)])
    assert tree.process.poll() is None


def test_a_job_that_kills_its_worker_ends_as_a_dead_letter(start: Start) -> None:
    deadly = stored(handlers.kill_worker.enqueue(99))
    start("--processes", "2", "--threads", "1")
    becomes(deadly, "discarded")
    assert deadly.dead_letter
    assert history(deadly) == [(attempt, "lost", DIED) for attempt in (1, 2, 3)]
    harmless = stored(handlers.note.enqueue())
    becomes(harmless, "completed")


@pytest.mark.smoke
def test_an_atomic_handler_that_dies_before_its_commit_leaves_neither_row_nor_completion(
    start: Start,
) -> None:
    job = stored(handlers.transfer.enqueue("once", "die"))
    start().ready()
    becomes(job, "completed")
    # It wrote twice, and once counts.
    assert marks(job) == ["wrote", "wrote"]
    assert Thing.objects.filter(name="once").count() == 1
    assert history(job) == [(1, "lost", DIED)]


def freeze_without_transaction(pid: int) -> None:
    """Freeze a process between two transactions: with one, it keeps the rows that it has locked."""

    def is_frozen() -> bool:
        os.kill(pid, signal.SIGSTOP)
        if not has_open_transaction():
            return True
        os.kill(pid, signal.SIGCONT)
        return False

    eventually(is_frozen, "it is frozen without a transaction")


def has_open_transaction() -> bool:
    if connection.vendor != "postgresql":
        return False
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid() AND state LIKE 'idle in transaction%')"
        )
        return bool(cursor.fetchone()[0])


@pytest.mark.smoke
def test_a_process_that_froze_past_its_lease_changes_nothing_when_it_thaws(
    start: Start,
) -> None:
    job = stored(handlers.wait.options(visibility_timeout=3).enqueue())
    # Its beats are so far apart that its lease lapses before it counts as dead.
    first = start(ojs={"HEARTBEAT_INTERVAL": 1}).ready()
    started(job)
    frozen = first.child_of(job)
    freeze_without_transaction(frozen)
    try:
        second = start().ready()
        started(job, 2)
        job.refresh_from_db()
        assert job.attempt == 2
        assert job.worker_id in {worker.pk for worker in second.workers()}
    finally:
        os.kill(frozen, signal.SIGCONT)
    # The thawed handler is interrupted, and its result is discarded.
    eventually(
        lambda: any(event.startswith("stopped by Interrupted") for event in marks(job)),
        "the thawed handler is stopped",
    )
    release(job)
    becomes(job, "completed")
    assert (job.attempt, runs(job, "done")) == (2, [(2, 2)])
    assert history(job)[0][1] in ("lapsed", "lost")

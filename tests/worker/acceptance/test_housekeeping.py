"""What a worker does beside running jobs: due work, expiry, other workers' leavings, itself."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection

import django_ojs as ojs
from django_ojs.extensions.cron import operations as cron
from django_ojs.extensions.events.models import Event
from django_ojs.models import Job, Worker
from django_ojs.models.worker import Directive
from django_ojs.operations import beat, fetch
from django_ojs.operations.workers import registry
from django_ojs.spec.errors import Conflict
from tests import factories
from tests.held_key import held_key
from tests.operations.cron.scenes import make_due, register
from tests.testapp import worker_jobs as handlers
from tests.worker.acceptance.conftest import Start
from tests.worker.acceptance.ledger import (
    ALIASES,
    becomes,
    history,
    release,
    runs,
    started,
    stored,
    unfinished,
)
from tests.worker.processes import Tree
from tests.worker.waiting import eventually

pytestmark = [pytest.mark.django_db(transaction=True, databases=ALIASES), pytest.mark.slow]


@pytest.mark.smoke
def test_due_work_is_promoted_expired_work_discarded_and_a_lapsed_claim_taken_back(
    start: Start,
) -> None:
    soon = stored(handlers.note.options(scheduled_at=timedelta(seconds=0.3)).enqueue())
    later = stored(handlers.note.options(scheduled_at=timedelta(hours=1)).enqueue())
    expired = stored(
        handlers.note.options(
            scheduled_at=timedelta(hours=2), expires_at=timedelta(hours=1)
        ).enqueue()
    )
    factories.age(expired.pk, timedelta(hours=1))
    retryable = factories.fail.fail(
        factories.active(type="worker.note", queue="default", retry=factories.hourly()).id,
        factories.BOOM,
    )
    factories.age(retryable.pk, timedelta(hours=2))
    lapsed = stored(handlers.note.enqueue())
    fetch.fetch(["default"], visibility_timeout=timedelta(milliseconds=1), due=False)
    start().ready()
    for job in (soon, retryable, lapsed):
        becomes(job, "completed")
    assert becomes(expired, "discarded").discard_reason == "expired"
    assert history(lapsed) == [(1, "lapsed", "visibility_timeout")]
    assert becomes(later, "scheduled").run == 0


@pytest.mark.postgresql  # On SQLite no transaction stays open beside one that writes.
def test_an_open_transaction_with_the_unique_key_of_a_cron_job_stops_no_other_work(
    start: Start,
) -> None:
    options = {"unique": {"keys": ["args"], "on_conflict": "ignore"}, "queue": "nobody"}
    with held_key("report.make", "same") as commit:
        register("locked", template={"args": ["same"], "options": options})
        register("free", template={"type": "worker.note", "args": []})
        start().ready()
        due = make_due("locked", "free")
        eventually(
            lambda: cron.get("free").run_count == 1, "the other cron job has enqueued its job"
        )
        # Later than the first try of the cron job, after which everything else would wait.
        becomes(
            stored(handlers.note.options(scheduled_at=timedelta(seconds=1)).enqueue()), "completed"
        )
        assert cron.get("locked").due_at == due
        commit()
        eventually(lambda: cron.get("locked").due_at != due, "its time has passed")
    assert cron.get("locked").run_count == 0


def test_jobs_that_wait_behind_a_slow_one_are_given_back_and_done_by_another(
    start: Start,
) -> None:
    first = start("--threads", "1")
    first.ready()
    # It learns that jobs are short, and claims many at a time.
    warm = ojs.enqueue_batch([handlers.quick.request(n) for n in range(300)])
    eventually(lambda: unfinished([job.id for job in warm]) == 0, "the short ones are done")
    first_job, *rest = ojs.enqueue_batch(
        [handlers.wait.request(), *(handlers.quick.request(n) for n in range(20))]
    )
    slow = first_job.job()
    started(slow)
    # Claimed with it or not, they are soon free for whoever has a slot, and stay so.
    second = start("--threads", "1").ready()
    eventually(lambda: unfinished([job.id for job in rest]) == 0, "the others are done elsewhere")
    assert becomes(slow, "active").attempt == 1
    others = Job.objects.filter(pk__in=[job.id for job in rest])
    by = {worker.pk for worker in second.workers()}
    assert {job.worker_id for job in others} == by
    # Given back once, not claimed and given back again until the slow one is done.
    assert {job.spent for job in others} == {1}
    assert max(job.run for job in others) <= 3
    assert not any(history(job) for job in others)
    release(slow)
    becomes(slow, "completed")


def test_a_beat_can_make_a_worker_quiet_and_running_again_and_end_it(start: Start) -> None:
    tree = start().ready()
    (worker,) = tree.workers()
    for directive, state in ((Directive.QUIET, "available"), (Directive.RUNNING, "completed")):
        beat.direct(worker.pk, directive)
        eventually(
            lambda directive=directive: Worker.objects.get().state == directive,
            f"the worker is {directive}",
        )
        job = stored(handlers.note.enqueue())
        becomes(job, state)
    beat.direct(worker.pk, Directive.TERMINATE)
    assert tree.ends() == 0


def test_a_process_is_replaced_after_its_number_of_jobs(start: Start) -> None:
    jobs = [stored(handlers.note.enqueue()) for _ in range(5)]
    tree = start("--threads", "1", "--max-jobs", "2")
    for job in jobs:
        becomes(job, "completed")
    workers = [job.worker_id for job in jobs]
    assert len(set(workers)) == 3
    assert max(workers.count(worker) for worker in workers) == 2
    assert not any(history(job) for job in jobs)
    assert "is replaced." in tree.log
    assert tree.process.poll() is None


def test_a_process_that_claims_no_more_jobs_says_so_while_its_last_one_runs(start: Start) -> None:
    job = stored(handlers.wait.enqueue())
    tree = start("--threads", "1", "--max-jobs", "1")
    started(job)
    worker_id = Job.objects.get(pk=job.pk).worker_id
    quiet = Event.objects.filter(type="worker.quiet", subject=worker_id)
    eventually(quiet.exists, f"it says so; it said:\n{tree.log}")
    release(job)
    becomes(job, "completed")


def test_a_process_that_has_grown_too_large_is_replaced(start: Start) -> None:
    job = stored(handlers.note.enqueue())
    tree = start("--max-rss", "1")
    becomes(job, "completed")
    tree.says("MB and is replaced.")
    becomes(stored(handlers.note.enqueue()), "completed")
    assert tree.process.poll() is None


APP = """
import django_ojs as ojs

@ojs.job("reloaded.answer")
def answer():
    return {version}
"""


def start_under_debug(start: Start, folder: Path) -> tuple[Tree, Path]:
    """Start a worker under DEBUG with an app in a folder; return the app's handlers as well."""
    jobs = folder / "ojs_reloaded_app" / "jobs.py"
    jobs.parent.mkdir()
    (jobs.parent / "__init__.py").write_text("")
    jobs.write_text(APP.format(version=1))
    tree = start(
        "--threads",
        "1",
        OJS_TEST_DEBUG="1",
        OJS_TEST_APPS='["ojs_reloaded_app"]',
        PYTHONPATH=str(folder),
        PYTHONDONTWRITEBYTECODE="1",
    ).ready()
    return tree, jobs


#: A system check finds it.
UNFIT = (
    APP
    + """
from django.core import checks

@checks.register()
def unfit(**kwargs):
    return [checks.Error("It does not fit.")]
"""
)


def test_under_debug_an_error_in_the_code_does_not_end_the_worker(
    start: Start, tmp_path: Path
) -> None:
    tree, jobs = start_under_debug(start, tmp_path)
    broken = [("def answer(:\n", "SyntaxError: "), (UNFIT.format(version=3), "It does not fit.")]
    for number, (code, said) in enumerate(broken, start=1):
        jobs.write_text(code)
        tree.says(said)
        assert tree.log.count("This one continues with the old code.") >= number
        assert becomes(stored(ojs.enqueue("reloaded.answer")), "completed").result == 1
    jobs.write_text(APP.format(version=22))
    tree.says("Code changed: the worker restarts.")
    eventually(lambda: tree.log.count("runs jobs of") > 1, "the new worker runs")
    assert becomes(stored(ojs.enqueue("reloaded.answer")), "completed").result == 22
    assert tree.process.poll() is None


def test_under_debug_the_worker_starts_again_when_its_code_changes(
    start: Start, tmp_path: Path
) -> None:
    tree, jobs = start_under_debug(start, tmp_path)
    job = stored(ojs.enqueue("reloaded.answer"))
    assert becomes(job, "completed").result == 1
    running = stored(handlers.wait.enqueue())
    started(running)
    jobs.write_text(APP.format(version=2) + "\n")
    tree.says("Code changed: the worker restarts.")
    eventually(lambda: Worker.objects.filter(state="terminate").exists(), "the old process drains")
    release(running)
    # What ran has been waited for, and the new code has its turn.
    job = stored(ojs.enqueue("reloaded.answer"))
    assert becomes(job, "completed").result == 2
    assert (becomes(running, "completed").attempt, runs(running, "done")) == (1, [(1, 1)])
    assert tree.process.poll() is None


@pytest.mark.postgresql
def test_a_worker_survives_the_loss_of_all_its_connections(start: Start) -> None:
    tree = start("--threads", "2", ojs={"POLL_INTERVAL": 0.1}).ready()
    first = stored(handlers.session.enqueue())
    becomes(first, "completed")
    running = stored(handlers.wait.options(retry={"max_attempts": 1}).enqueue())
    started(running)
    (worker,) = tree.workers()
    for _ in range(3):
        with connection.cursor() as cursor:
            # The handler that runs reads from the other database: it is not released.
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        job = stored(handlers.note.enqueue())
        becomes(job, "completed")
    # It is the same process, its lease holds, and nobody took it for dead.
    release(running)
    assert becomes(running, "completed").attempt == 1
    assert becomes(running, "completed").worker_id == worker.pk
    again = stored(handlers.session.enqueue())
    assert becomes(again, "completed").result != first.result
    assert [w.pk for w in tree.workers()] == [worker.pk]


@pytest.mark.smoke
def test_the_slots_of_a_worker_are_changed_from_outside_within_what_its_command_allows(
    start: Start,
) -> None:
    (worker,) = start("--threads", "1:3").ready().workers()
    assert (worker.concurrency, worker.least_slots, worker.most_slots) == (1, 1, 3)
    jobs = [stored(handlers.wait.enqueue()) for _ in range(3)]
    jobs.append(stored(handlers.wait_async.enqueue()))
    started(jobs[0])
    assert not any(runs(job) for job in jobs[1:])
    registry.resize(worker.pk, 3)
    for job in jobs[:3]:
        started(job)
    eventually(
        lambda: Worker.objects.filter(pk=worker.pk, concurrency=3, wanted_slots=None).exists(),
        "the worker has reported its slots",
    )
    # Fewer: those that run go on, and another one starts when one slot is free.
    registry.resize(worker.pk, 1)
    eventually(
        lambda: Worker.objects.filter(pk=worker.pk, concurrency=1, wanted_slots=None).exists(),
        "the worker has reported its slots",
    )
    release(jobs[0])
    becomes(jobs[0], "completed")
    release(jobs[1])
    becomes(jobs[1], "completed")
    assert not runs(jobs[3])
    release(jobs[2])
    started(jobs[3])
    release(jobs[3])
    becomes(jobs[3], "completed")
    for slots in (0, 4):
        with pytest.raises(Conflict, match="takes 1 to 3 slots"):
            registry.resize(worker.pk, slots)

"""Maintenance and listening: what a process does beside its jobs, in threads of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.db import DataError, OperationalError, connection
from django.db.models.functions import Now

from django_ojs.extension import DueStep, Extension, Hooks
from django_ojs.hooks import registry
from django_ojs.models import Lease, Worker
from django_ojs.operations import due_jobs
from django_ojs.operations.maintenance import job_pruning, lease
from django_ojs.operations.workers import rescue
from django_ojs.storage import backoff, database
from django_ojs.worker import maintenance as maintenances
from django_ojs.worker.job_log import JobLog
from django_ojs.worker.listener import Listener
from django_ojs.worker.maintenance import MaintenanceThread
from tests import factories
from tests.worker.waiting import BOUND, eventually

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def maintaining(worker_id: str = factories.WORKER) -> Iterator[MaintenanceThread]:
    maintenance = MaintenanceThread(worker_id, JobLog())
    try:
        yield maintenance
    finally:
        maintenance.close()


@pytest.fixture(autouse=True)
def short_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenances, "TICK", 0.02)


def test_it_does_all_that_time_does_to_jobs() -> None:
    due = factories.push(scheduled_at=factories.HOUR)
    expired = factories.push(expires_at=factories.MINUTE)
    factories.age([due.pk, expired.pk], timedelta(hours=2))
    # It waits for its next attempt until this test has looked at all of them together.
    overdue = factories.active(timeout_ms=1000, retry=factories.hourly())
    lapsed = factories.active()
    factories.age(lapsed.id, timedelta(hours=1))
    factories.age(overdue.id, timedelta(minutes=1))
    dead = factories.active(worker_id="dead")
    factories.WorkerFactory(id="dead", interval=timedelta(milliseconds=1))
    old = factories.in_state("completed")
    factories.age(old.pk, timedelta(days=400))
    wanted = {
        due.pk: "available",
        expired.pk: "discarded",
        lapsed.id: "available",
        overdue.id: "retryable",
        dead.id: "available",
    }
    with factories.steady(), maintaining():
        eventually(
            lambda: {key: factories.read(key).state for key in wanted} == wanted,
            "each is where it belongs",
        )
        eventually(
            lambda: not factories.jobs().filter(pk=old.pk).exists(), "what is old is deleted"
        )
    assert factories.read(overdue.id).error["type"] == "timeout"
    assert not Worker.objects.filter(pk="dead").exists()


def test_one_does_it_for_all_and_the_next_takes_over_when_it_ends() -> None:
    with maintaining("first"):
        eventually(lambda: Lease.objects.filter(holder="first").exists(), "the first has it")
        with maintaining("second"):
            assert not lease.take("third")
            assert not Lease.objects.filter(holder="second").exists()
    assert not Lease.objects.exists()
    with maintaining("second"):
        eventually(lambda: Lease.objects.filter(holder="second").exists(), "the second has it")


def test_a_process_that_lacks_an_extension_of_the_database_passes_the_lease_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(maintenances, "SHARE", 0.0)
    monkeypatch.setattr(maintenances, "ASK_INTERVAL", 0.02)
    of_first = Lease.objects.filter(holder="first")
    monkeypatch.setattr(lease, "left_out", lambda: ["cron"] if of_first.exists() else [])
    for name in ("first", "second"):
        factories.WorkerFactory(id=name, interval=timedelta(hours=1), enforces_timeouts=True)
    with maintaining("first"):
        eventually(of_first.exists, "the first has it")
        with maintaining("second"):
            eventually(Lease.objects.filter(holder="second").exists, "the second has it")
        eventually(of_first.exists, "the first has it again")


def test_a_process_that_lacks_an_extension_keeps_the_lease_while_no_other_could_take_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(maintenances, "SHARE", 0.0)
    monkeypatch.setattr(maintenances, "ASK_INTERVAL", 0.02)
    asked = threading.Semaphore(0)
    given: list[str] = []

    def left_out() -> list[str]:
        asked.release()
        return ["cron"]

    monkeypatch.setattr(lease, "left_out", left_out)
    of_project = {"interval": timedelta(hours=1), "enforces_timeouts": True}
    factories.WorkerFactory(id="first", **of_project)
    factories.WorkerFactory(id="in another language")
    factories.WorkerFactory(id="ended", **of_project)
    Worker.objects.filter(pk="ended").update(seen_at=Now() - timedelta(days=1))
    with maintaining("first"):
        monkeypatch.setattr(lease, "give", given.append)
        for _ in range(3):
            assert asked.acquire(timeout=BOUND)
        assert given == []


def test_a_worker_that_seemed_dead_before_another_had_the_lease_must_seem_so_twice_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(maintenances, "ASK_INTERVAL", 0.02)
    monkeypatch.setattr(MaintenanceThread, "_run_due", lambda *_: False)
    with maintaining("first") as maintenance:
        eventually(Lease.objects.filter(holder="first").exists, "the first has it")
        maintenance._dead_workers._suspects = {("live", None)}
        Lease.objects.update(holder="second", until=Now() + timedelta(seconds=2))
        eventually(lambda: not maintenance._dead_workers._suspects, "it starts anew")


def test_whoever_has_no_lease_asks_for_it_less_often_than_it_makes_a_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(maintenances, "ASK_INTERVAL", 3600.0)
    asked: list[str] = []
    passes = threading.Semaphore(0)
    monkeypatch.setattr(lease, "take", lambda holder, **_: asked.append(holder))
    monkeypatch.setattr(registry, "worker_passes", [("", passes.release)])
    with maintaining("second"):
        for _ in range(3):
            assert passes.acquire(timeout=BOUND)
    assert asked == ["second"]


def broken(error: Exception) -> Callable[..., int]:
    def step(*args: object) -> int:
        raise error

    return step


@pytest.mark.parametrize("error", [DataError("a secret"), KeyError("a secret")])
def test_a_step_that_fails_does_not_keep_the_others_from_their_turn(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(due_jobs, "promote", broken(error))
    due = factories.push(scheduled_at=factories.HOUR)
    job = factories.push(expires_at=factories.MINUTE)
    factories.age([due.pk, job.pk], timedelta(hours=2))
    with maintaining():
        eventually(lambda: factories.read(job.pk).state == "discarded", "the next step runs")


def test_it_goes_on_when_the_database_is_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, failed = lease.take, threading.Event()

    def away(holder: str, **given: str) -> bool:
        if failed.is_set():
            return real(holder, **given)
        failed.set()
        raise OperationalError("a secret")

    monkeypatch.setattr(lease, "take", away)
    job = factories.push(scheduled_at=factories.HOUR)
    factories.age(job.pk, timedelta(hours=2))
    with maintaining():
        eventually(lambda: factories.read(job.pk).state == "available", "it is promoted")
    assert "The database does not respond (OperationalError)" in caplog.text
    assert "a secret" not in caplog.text


def test_a_step_that_found_a_full_batch_comes_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = iter([database.BATCH] * 5)
    calls = threading.Semaphore(0)

    def step() -> int:
        calls.release()
        return next(counts, 0)

    monkeypatch.setattr(job_pruning, "prune", step)
    monkeypatch.setattr(
        maintenances, "DueStep", lambda *, run, **_: DueStep(run=run, interval=3600.0)
    )
    with maintaining():
        # Five full ones and the one that is not; the seventh would be due in an hour.
        for _ in range(6):
            assert calls.acquire(timeout=BOUND)
        assert not calls.acquire(timeout=0.5)


def test_a_step_with_no_end_of_work_does_not_keep_the_others_from_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns: list[str] = []

    def endless(name: str) -> Callable[..., int]:
        def step(*args: object) -> int:
            if turns[-1:] != [name]:
                turns.append(name)
            return job_pruning.PRUNED

        return step

    monkeypatch.setattr(job_pruning, "prune", endless("prune"))
    monkeypatch.setattr(rescue.LapseCheck, "lapse", endless("lapse"))
    # What the steps would find: they do not run while there is nothing for them.
    factories.age(factories.active(timeout_ms=10**9).id, timedelta(hours=1))
    factories.age(factories.in_state("completed").pk, timedelta(days=400))
    job = factories.push(scheduled_at=factories.HOUR)
    with factories.steady(), maintaining():
        eventually(lambda: len(turns) > 4, "they take turns")
        factories.age(job.pk, timedelta(hours=2))
        eventually(lambda: factories.read(job.pk).state == "available", "it is promoted")


def test_between_two_full_batches_the_other_writers_of_sqlite_get_the_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(maintenances, "TICK", 3600.0)
    with maintaining() as maintenance:
        monkeypatch.setattr(maintenance._stop, "wait", lambda seconds: waited.append(seconds))
        counts = iter([10, 10, 9])
        assert not maintenance._run_burst(DueStep(run=lambda: next(counts), interval=1.0, batch=10))
    one_writer = database.dialect().has_one_writer
    assert waited == [maintenances.GAP if one_writer else 0] * 2


@pytest.mark.postgresql  # On SQLite two of them would wait for each other.
def test_a_worker_without_the_lease_helps_with_what_is_overdue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lease, "take", lambda holder, **_: False)
    monkeypatch.setattr(
        maintenances, "DueStep", lambda *, run, **_: DueStep(run=run, interval=0.05)
    )
    due, overdue = (factories.push(scheduled_at=factories.HOUR) for _ in range(2))
    lapsed, old = factories.active(), factories.in_state("completed")
    factories.age(overdue.pk, timedelta(hours=2))
    factories.age(lapsed.id, timedelta(hours=1))
    factories.age(old.pk, timedelta(days=400))
    with factories.steady(), maintaining():
        eventually(lambda: factories.read(overdue.pk).state == "available", "it is promoted")
        eventually(lambda: factories.read(lapsed.id).state == "available", "it is taken back")
        eventually(lambda: not factories.jobs().filter(pk=old.pk).exists(), "it is deleted")
        factories.age(due.pk, timedelta(hours=1, milliseconds=1))
    assert factories.read(due.pk).state == "scheduled"
    assert not Lease.objects.exists()


def test_a_pass_that_finds_nothing_is_one_statement_and_runs_no_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran: list[DueStep] = []
    asked = threading.Semaphore(0)
    real = maintenances.raw_queries.which_hold

    def which_hold(conditions: Sequence[str]) -> list[bool]:
        asked.release()
        return real(conditions)

    monkeypatch.setattr(maintenances.raw_queries, "which_hold", which_hold)
    monkeypatch.setattr(maintenances, "_run_once", lambda step: ran.append(step) or False)
    # Wide enough that what is found at the start of a pass holds for all of it.
    monkeypatch.setattr(maintenances, "TICK", 60.0)
    maintenance = MaintenanceThread(factories.WORKER, JobLog())
    try:
        due = dict.fromkeys(maintenance._steps, 0.0)
        assert not maintenance._run_due(maintenance._steps, due)
        assert asked.acquire(blocking=False)
        assert not asked.acquire(blocking=False)
        assert [step for step in ran if step.when is not None] == []
        assert {step for step in maintenance._steps if step.when is None} == set(ran)
    finally:
        maintenance.close()


class Stepping(Extension):
    """An extension with a step that has work and one that has none, also for helpers."""

    name = "stepping"
    number = 40

    def __init__(self) -> None:
        self.ran: list[str] = []

    def hooks(self) -> Hooks:
        return Hooks()

    def due_steps(self) -> Sequence[DueStep]:
        return (self.step("due", "1 = 1"), self.step("idle", "1 = 0"))

    def helping_steps(self, behind: timedelta) -> Sequence[DueStep]:
        return (self.step(f"late for {behind.total_seconds():g} s", "1 = 1"),)

    def step(self, name: str, condition: str) -> DueStep:
        def run() -> int:
            self.ran.append(name)
            return 0

        return DueStep(run=run, interval=1.0, when=lambda: condition)


def test_a_pass_does_the_steps_of_extensions_that_have_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Wide enough that what is found at the start of a pass holds for all of it.
    monkeypatch.setattr(maintenances, "TICK", 60.0)
    stepping = Stepping()
    registry.register(stepping)
    try:
        with maintaining() as maintenance:
            maintenance._run_due(maintenance._steps, dict.fromkeys(maintenance._steps, 0.0))
            assert stepping.ran == ["due"]
            # Those of a worker without the lease.
            maintenance._run_due(maintenance._helping, dict.fromkeys(maintenance._helping, 0.0))
            assert stepping.ran == ["due", "late for 2 s"]
    finally:
        registry.remove(stepping)


def test_each_optional_subject_brings_its_own_steps() -> None:
    modules = {type(each).__module__ for each in registry.extensions() if each.due_steps()}
    subjects = {name.removeprefix("django_ojs.extensions.").split(".")[0] for name in modules}
    assert subjects == {
        *("audit", "backpressure", "checkpoints", "cron", "events", "limits", "outbox", "payloads"),
        *(
            "incidents",
            "statistics",
            "tenants",
            "steps",
            "webhooks",
            "workflows",
            "bulk_operations",
        ),
    }


def promotes_though_conditions_fail(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Let the statement about all steps fail, and show that a due job is promoted."""
    real = maintenances.raw_queries.which_hold

    def which_hold(conditions: Sequence[str], values: Sequence[str] = ()) -> list[bool]:
        if len(conditions) > 2:
            raise error
        return real(conditions, values)

    monkeypatch.setattr(maintenances.raw_queries, "which_hold", which_hold)
    due = factories.push(scheduled_at=factories.HOUR)
    factories.age(due.pk, timedelta(hours=2))
    with maintaining():
        eventually(lambda: factories.read(due.pk).state == "available", "it is promoted")


def test_if_the_conditions_cannot_be_checked_each_step_asks_for_itself(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    promotes_though_conditions_fail(monkeypatch, DataError("a secret"))
    assert "The conditions of the maintenance could not be checked" in caplog.text


class Untabled(Stepping):
    """An extension whose table is missing."""

    TABLE = "ojs_that_is_missing"

    def due_steps(self) -> Sequence[DueStep]:
        return (
            self.step("due", f"EXISTS (SELECT 1 FROM {self.TABLE})"),
            DueStep(run=self.read, interval=1.0),
        )

    def helping_steps(self, behind: timedelta) -> Sequence[DueStep]:
        return ()

    def read(self) -> int:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT 1 FROM {self.TABLE}")
        return 0


def test_a_table_that_is_missing_keeps_only_its_own_step_from_running(
    caplog: pytest.LogCaptureFixture,
) -> None:
    untabled = Untabled()
    registry.register(untabled)
    due = factories.push(scheduled_at=factories.HOUR)
    factories.age(due.pk, timedelta(hours=2))
    try:
        with maintaining():
            eventually(lambda: factories.read(due.pk).state == "available", "it is promoted")
            eventually(lambda: "due" in untabled.ran, "the steps after it run")
    finally:
        registry.remove(untabled)
    assert "The database does not respond" not in caplog.text


@pytest.mark.postgresql
def test_a_table_that_is_locked_keeps_only_its_own_step_from_running(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from psycopg import errors

    error = OperationalError()
    error.__cause__ = errors.LockNotAvailable()
    promotes_though_conditions_fail(monkeypatch, error)
    assert "The database does not respond" in caplog.text


def test_what_became_due_during_a_long_pass_is_done_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    job = factories.push(scheduled_at=factories.HOUR)
    # The clock of the database says that it is due after the conditions were checked.
    real = maintenances.raw_queries.which_hold

    def which_hold(conditions: Sequence[str], values: Sequence[str] = ()) -> list[bool]:
        found = real(conditions, values)
        if len(conditions) > 2:
            factories.age(job.pk, timedelta(hours=2))
        return found

    monkeypatch.setattr(maintenances.raw_queries, "which_hold", which_hold)
    monkeypatch.setattr(maintenances, "TICK", 60.0)
    maintenance = MaintenanceThread(factories.WORKER, JobLog())
    try:
        monkeypatch.setattr(maintenances, "TICK", 0.0)  # Any pass is a long one.
        maintenance._run_due(maintenance._steps, dict.fromkeys(maintenance._steps, 0.0))
    finally:
        maintenance.close()
    assert factories.read(job.pk).state == "available"


class Hearing:
    def __init__(self) -> None:
        self.woken = threading.Semaphore(0)
        self.heard: list[tuple[set[str], float | None]] = []
        self.attached = 0
        self.connected = 0
        self.own_session = True
        self.wants_session = False
        self.detached = 0

    def attach_session(self) -> bool:
        self.wants_session = False
        self.attached += 1
        return self.own_session

    def detach_session(self) -> None:
        self.detached += 1

    def connect(self) -> None:
        self.connected += 1

    def wake(self, queues: Collection[str], sent_at: float | None) -> None:
        self.heard.append((set(queues), sent_at))
        self.woken.release()

    @contextmanager
    def listens(self, *queues: str) -> Iterator[Listener]:
        listener = Listener(queues, self.wake, self, self.connect)
        try:
            yield listener
        finally:
            listener.close()


@pytest.mark.sqlite
def test_where_nothing_is_notified_nobody_listens() -> None:
    hearing = Hearing()
    with hearing.listens("default") as listener:
        assert not listener.listening
    assert hearing.attached == 0


@pytest.mark.postgresql
def test_a_job_of_its_queues_wakes_the_listener_and_no_other_does() -> None:
    hearing = Hearing()
    with hearing.listens("mine", "mine.too") as listener:
        eventually(lambda: listener.listening, "it listens")
        # What was announced before it listened is looked for.
        assert hearing.woken.acquire(timeout=BOUND)
        assert hearing.heard == [(set(), None)]
        with connection.cursor() as cursor:
            # Somebody else's notification, which has no time.
            cursor.execute("SELECT pg_notify('ojs', 'mine')")
        factories.push(queue="theirs")
        for queue in ("mine", "mine.too"):
            factories.push(queue=queue)
            assert hearing.woken.acquire(timeout=BOUND)
        assert not hearing.woken.acquire(blocking=False)
        (_, (first, first_at), (second, second_at)) = hearing.heard
        assert (first, second) == ({"mine"}, {"mine.too"})
        assert first_at is not None
        assert second_at is not None
        assert first_at < second_at, "when the database sent it"


@pytest.mark.postgresql
def test_a_listener_whose_session_ends_makes_a_new_one_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backoff, "FIRST", 0.01)
    hearing = Hearing()
    with hearing.listens("mine") as listener:
        eventually(lambda: listener.listening, "it listens")
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        eventually(lambda: hearing.attached == 2 and listener.listening, "it listens again")
        assert hearing.detached == 1
        while hearing.woken.acquire(blocking=False):
            pass
        factories.push(queue="mine")
        assert hearing.woken.acquire(timeout=BOUND)
        assert hearing.connected == 2


@pytest.mark.postgresql
def test_a_listener_attaches_its_session_again_when_that_is_wanted() -> None:
    hearing = Hearing()
    with hearing.listens("mine") as listener:
        eventually(lambda: listener.listening, "it listens")
        hearing.wants_session = True
        eventually(lambda: hearing.attached == 2, "it is attached again")
        assert listener.listening
        assert hearing.connected == 1


@pytest.mark.postgresql
def test_behind_a_pooler_it_polls_and_does_not_listen() -> None:
    hearing = Hearing()
    hearing.own_session = False
    with hearing.listens("mine") as listener:
        eventually(lambda: hearing.attached == 1, "it has looked")
        factories.push(queue="mine")
        assert not hearing.woken.acquire(timeout=0.3)
        assert not listener.listening

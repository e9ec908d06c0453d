"""The executor: what becomes of a handler that is a plain function."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from traceback import walk_tb
from typing import Any

import pytest
from django.db import InternalError, connection, connections

from django_ojs.context import JobContext, current_context
from django_ojs.operations import fetch
from django_ojs.operations.workers import rescue
from django_ojs.spec.failure import Failure, ResultRejected
from django_ojs.worker.executor import Executor
from django_ojs.worker.handler_call import Interrupted, interrupt
from django_ojs.worker.in_flight import Phase
from tests import factories
from tests.testapp.models import Thing
from tests.worker.parts import Gate, Outcomes, run_of
from tests.worker.waiting import eventually


@contextmanager
def executing(slots: int, outcomes: Outcomes) -> Iterator[Executor]:
    executor = Executor(slots, outcomes)
    try:
        yield executor
    finally:
        executor.close()


def test_a_function_gets_its_arguments_and_its_result_is_the_outcome(outcomes: Outcomes) -> None:
    run = run_of(lambda a, b: {"sum": a + b}, 2, 3)
    with executing(1, outcomes) as executor:
        executor.submit([run])
        assert outcomes.next() == (run, {"sum": 5}, None, False)
    assert run.phase is Phase.DONE


def test_the_result_that_a_handler_has_set_goes_before_the_one_it_returns(
    outcomes: Outcomes,
) -> None:
    def function(ctx: JobContext) -> str:
        ctx.set_result("set")
        return "returned"

    with executing(1, outcomes) as executor:
        executor.submit([run_of(function)])
        assert outcomes.next().result == "set"


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_what_a_handler_raises_is_the_outcome_and_the_thread_takes_the_next(
    outcomes: Outcomes, kind: type[BaseException]
) -> None:
    def function() -> None:
        raise kind("no")

    with executing(1, outcomes) as executor:
        executor.submit([run_of(function), run_of(lambda: "next")])
        assert isinstance(outcomes.next().error, kind)
        assert outcomes.next().error is None


@pytest.mark.parametrize("is_async", [False, True])
def test_the_backtrace_of_a_failure_begins_at_the_handler(
    outcomes: Outcomes, is_async: bool
) -> None:
    def inner() -> None:
        raise ValueError("no")

    def function() -> None:
        inner()

    async def coroutine() -> None:
        inner()

    with executing(1, outcomes) as executor:
        executor.submit([run_of(coroutine if is_async else function)])
        error = outcomes.next().error
    assert error is not None
    names = [frame.rpartition(".")[2] for frame in Failure.from_exception(error).backtrace]
    assert names == ["coroutine" if is_async else "function", "inner"]
    # What the project keeps of it keeps no frame of the worker.
    assert len(list(walk_tb(error.__traceback__))) == 2


@pytest.mark.parametrize("returned", [{1, 2}, object(), b"bytes", float("nan"), {1: "one"}])
def test_a_result_that_json_cannot_carry_fails_the_job_at_its_place(
    outcomes: Outcomes, returned: Any
) -> None:
    with executing(1, outcomes) as executor:
        executor.submit([run_of(lambda: {"deep": [returned]})])
        error = outcomes.next().error
    assert isinstance(error, ResultRejected)
    assert "result.deep[0]" in str(error)
    assert f"{__file__}:" in str(error)
    assert error.__cause__ is None
    # Its effects are there: another attempt would repeat them.
    assert Failure.from_exception(error).retryable is False


def test_a_result_over_its_limit_fails_the_job(outcomes: Outcomes, settings: Any) -> None:
    settings.OJS = settings.OJS | {"MAX_RESULT_BYTES": 100}
    with executing(1, outcomes) as executor:
        executor.submit([run_of(lambda: "x" * 100)])
        assert isinstance(outcomes.next().error, ResultRejected)


def test_the_context_is_the_current_one_in_its_run_and_in_no_other(outcomes: Outcomes) -> None:
    seen: list[JobContext | None] = []
    runs = [run_of(lambda: seen.append(current_context())) for _ in range(2)]
    with executing(1, outcomes) as executor:
        for run in runs:
            executor.submit([run])
            outcomes.next()
    assert seen == [run.context for run in runs]
    assert current_context() is None


def test_no_more_runs_at_a_time_than_there_are_slots(outcomes: Outcomes) -> None:
    gate = Gate()
    with executing(2, outcomes) as executor:
        executor.submit([run_of(gate) for _ in range(5)])
        gate.has_started()
        gate.has_started()
        gate.open()
        assert [outcomes.next().error for _ in range(5)] == [None] * 5
    assert gate.most == 2


def test_a_job_starts_at_once_while_there_is_a_slot(outcomes: Outcomes) -> None:
    # A thread that was just given a job must not be counted as idle: with the next job given to
    # it as well, that one waits behind the first though slots are free.
    for _ in range(50):
        gate = Gate()
        with executing(3, outcomes) as executor:
            executor.submit([run_of(lambda: None)])
            outcomes.next()
            for _ in range(3):
                executor.submit([run_of(gate)])
            for _ in range(3):
                gate.has_started()
            gate.open()
            for _ in range(3):
                outcomes.next()


def test_a_job_that_was_given_back_meanwhile_does_not_run(outcomes: Outcomes) -> None:
    gate, ran = Gate(), []
    given_back = run_of(lambda: ran.append(1))
    with executing(1, outcomes) as executor:
        executor.submit([run_of(gate), given_back])
        gate.has_started()
        assert given_back.revoke(Phase.WAITING)
        gate.open()
        outcomes.next()
    assert ran == []
    assert outcomes.empty


@pytest.mark.interrupts
def test_an_interrupted_handler_is_stopped_and_its_result_is_discarded(outcomes: Outcomes) -> None:
    stopped: list[BaseException] = []
    gate = Gate()

    def function() -> None:
        try:
            gate()
        except BaseException as error:
            stopped.append(error)
            raise

    run = run_of(function)
    with executing(1, outcomes) as executor:
        executor.submit([run])
        gate.has_started()
        assert run.revoke(Phase.RUNNING, interrupt)
        eventually(lambda: stopped, "the handler is stopped")
        assert isinstance(stopped[0], Interrupted)
        assert run.context.cancelled
        # The slot is free again, in a thread of its own.
        executor.submit([run_of(lambda: "next")])
        assert outcomes.next().result == "next"
    assert outcomes.empty


@pytest.mark.interrupts
def test_a_job_that_waits_behind_an_interrupted_one_gets_its_slot(outcomes: Outcomes) -> None:
    gate = Gate()
    first = run_of(gate)
    with executing(1, outcomes) as executor:
        executor.submit([first, run_of(lambda: "second")])
        gate.has_started()
        assert first.revoke(Phase.RUNNING, interrupt)
        assert outcomes.next().result == "second"


@pytest.mark.interrupts
def test_a_thread_that_does_not_end_holds_no_slot(outcomes: Outcomes) -> None:
    deaf, release = run_of(lambda: release.wait()), threading.Event()
    with executing(1, outcomes) as executor:
        try:
            executor.submit([deaf])
            eventually(lambda: deaf.phase is Phase.RUNNING, "it runs")
            assert deaf.revoke(Phase.RUNNING, interrupt)
            executor.submit([run_of(lambda: "next")])
            assert outcomes.next().result == "next"
        finally:
            release.set()
    assert outcomes.empty


@pytest.mark.django_db(transaction=True)
def test_an_atomic_handler_commits_its_rows_and_its_completion_together(outcomes: Outcomes) -> None:
    job = factories.active()
    run = run_of(lambda: Thing.objects.create(name="kept").pk, atomic=True, job=job)
    with executing(1, outcomes) as executor:
        executor.submit([run])
        outcome = outcomes.next()
    assert (outcome.error, outcome.committed) == (None, True)
    stored = factories.read(job.id)
    assert (stored.state, stored.result) == ("completed", Thing.objects.get().pk)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "how", ["it raises", "its result is none", "its claim is gone", "another run has the job"]
)
def test_an_atomic_handler_that_does_not_complete_leaves_no_row(
    outcomes: Outcomes, how: str
) -> None:
    job = factories.active()

    def function() -> object:
        Thing.objects.create(name="gone")
        if how == "it raises":
            raise ValueError
        return object() if how == "its result is none" else None

    if how in ("its claim is gone", "another run has the job"):
        factories.age(job.id, timedelta(hours=1))
        rescue.lapse()
    if how == "another run has the job":
        (again,) = fetch.fetch([job.queue], worker_id=job.worker_id)
        assert again.id == job.id
    with executing(1, outcomes) as executor:
        executor.submit([run_of(function, atomic=True, job=job)])
        outcome = outcomes.next()
    assert outcome.error is not None
    assert not outcome.committed
    assert not Thing.objects.exists()
    assert factories.read(job.id).state != "completed"


@pytest.mark.django_db(transaction=True)
def test_a_connection_serves_job_after_job_until_it_is_too_old(
    outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", 60)

    def own_connection() -> int:
        connection.ensure_connection()
        kept.append(connection.connection)
        return id(connection.connection)

    def age() -> None:
        connection.close_at = 0.0

    kept: list[Any] = []
    with executing(1, outcomes) as executor:
        found = []
        for function in (own_connection, own_connection, age, own_connection):
            executor.submit([run_of(function)])
            found.append(outcomes.next().result)
    assert found[0] == found[1] != found[3]


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_connection_to_a_server_that_takes_no_writes_serves_no_other_job(
    outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", 60)

    def write() -> None:
        Thing.objects.create(name="written")

    def become_read_only() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET default_transaction_read_only = on")
        write()

    with executing(1, outcomes) as executor:
        executor.submit([run_of(become_read_only), run_of(write)])
        assert isinstance(outcomes.next().error, InternalError)
        assert outcomes.next().error is None


@pytest.mark.django_db(transaction=True)
def test_the_queries_that_debug_keeps_are_forgotten_between_jobs(outcomes: Outcomes) -> None:
    def queries() -> int:
        connection.force_debug_cursor = True
        before = len(connection.queries_log)
        Thing.objects.count()
        return before

    with executing(1, outcomes) as executor:
        for _ in range(3):
            executor.submit([run_of(queries)])
            assert outcomes.next().result == 0


@pytest.mark.django_db(transaction=True)
def test_a_transaction_that_a_handler_left_open_is_not_the_next_ones(outcomes: Outcomes) -> None:
    def leave_open() -> None:
        connections["default"].set_autocommit(False)
        Thing.objects.create(name="never committed")

    with executing(1, outcomes) as executor:
        executor.submit([run_of(leave_open), run_of(lambda: connection.get_autocommit())])
        assert "left a transaction of the database 'default' open" in str(outcomes.next().error)
        assert outcomes.next().result is True
    assert not Thing.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_transaction_of_a_run_that_was_taken_away_is_not_the_next_ones(
    outcomes: Outcomes,
) -> None:
    def leave_open() -> None:
        connections["default"].set_autocommit(False)
        Thing.objects.create(name="never committed")
        assert taken.revoke(Phase.RUNNING)

    taken = run_of(leave_open)
    with executing(1, outcomes) as executor:
        executor.submit([taken, run_of(lambda: connection.get_autocommit())])
        assert outcomes.next().result is True
    assert not Thing.objects.exists()


def test_a_function_that_returns_a_coroutine_fails_with_what_to_write(outcomes: Outcomes) -> None:
    async def work() -> None:
        """Never awaited."""

    def wrapped() -> Any:
        return work()

    with executing(1, outcomes) as executor:
        executor.submit([run_of(wrapped)])
        error = outcomes.next().error
    assert isinstance(error, TypeError)
    assert "The handler returned a coroutine and is not async def itself" in str(error)


def test_the_number_of_slots_can_change_while_jobs_run(outcomes: Outcomes) -> None:
    gate, later = Gate(), Gate()
    executor = Executor(1, outcomes, 3)
    try:
        executor.submit([run_of(gate) for _ in range(3)])
        gate.has_started()
        executor.resize(3)
        gate.has_started()
        gate.has_started()
        executor.submit([run_of(later) for _ in range(3)])
        executor.resize(1)
        gate.open()
        later.has_started()
        later.open()
        assert [outcomes.next().error for _ in range(6)] == [None] * 6
    finally:
        executor.close()
    assert (gate.most, later.most) == (3, 1)

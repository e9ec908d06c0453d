"""The transaction of an atomic handler: its rows and its completion commit together, or neither."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.transaction import TransactionManagementError

from django_ojs.spec.failure import Failure
from django_ojs.worker.completer import Completer
from django_ojs.worker.executor import Executor
from django_ojs.worker.handler_call import interrupt
from django_ojs.worker.in_flight import JobsInFlight, Phase
from django_ojs.worker.job_log import JobLog
from tests import databases, factories
from tests.testapp.models import Thing
from tests.worker.parts import Gate, Outcomes, run_of
from tests.worker.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)


def outcome_of(function: Callable[[], Any]) -> tuple[Any, Any]:
    """Run an atomic handler. Return what the executor says of it, and the job as it is stored."""
    outcomes, job = Outcomes(), factories.active()
    executor = Executor(1, outcomes)
    try:
        executor.submit([run_of(function, atomic=True, job=job)])
        return outcomes.next(), factories.read(job.id)
    finally:
        executor.close()


STATEMENTS = [
    "ROLLBACK",
    " rollback work",
    "COMMIT",
    "commit ; select 1",
    "END",
    "/* a comment */ -- another\n ROLLBACK",
    "SELECT 1; ROLLBACK",
    "SELECT ';'; ROLLBACK; BEGIN",
    "ROLLBACK AND CHAIN",
    "COMMIT AND CHAIN",
    "ABORT",
    "PREPARE TRANSACTION 'x'",
]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_that_ends_the_transaction_is_rejected(statement: str) -> None:
    def function() -> None:
        Thing.objects.create(name="gone")
        with connection.cursor() as cursor:
            cursor.execute(statement)

    outcome, stored = outcome_of(function)
    assert isinstance(outcome.error, TransactionManagementError)
    assert "cannot execute" in str(outcome.error)
    assert not outcome.committed
    assert stored.state == "active"
    assert not Thing.objects.exists()


def test_a_statement_that_was_rejected_leaves_the_transaction_as_it_is() -> None:
    def function() -> None:
        Thing.objects.create(name="kept")
        with connection.cursor() as cursor, pytest.raises(TransactionManagementError):
            cursor.execute("ROLLBACK")

    outcome, stored = outcome_of(function)
    assert (outcome.error, stored.state) == (None, "completed")
    assert Thing.objects.get().name == "kept"


HARMLESS = [
    "SELECT 'x; ROLLBACK'",
    "SELECT CASE WHEN 1 = 1 THEN 2 END",
    "SELECT 1 /* COMMIT */",
]
if databases.KIND == "postgresql":
    HARMLESS += [
        "DO $$ BEGIN PERFORM 1; END $$",
        "DO $a$ DECLARE n int; BEGIN n := 1; END $a$; SELECT 1",
        "CREATE FUNCTION f() RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT 1; END",
    ]


@pytest.mark.parametrize("statement", HARMLESS)
def test_other_statements_and_savepoints_pass(statement: str) -> None:
    def function() -> None:
        with transaction.atomic():
            Thing.objects.create(name="kept")
        with transaction.atomic():
            Thing.objects.create(name="gone")
            transaction.set_rollback(True)
        with connection.cursor() as cursor:
            cursor.execute("SAVEPOINT own")
            cursor.execute("ROLLBACK TO SAVEPOINT own")
            cursor.execute("ROLLBACK TO own")
            cursor.execute("RELEASE SAVEPOINT own")
            cursor.execute(statement)
            connection.set_rollback(statement.startswith("CREATE"))
            if statement.startswith("CREATE"):
                raise ValueError("The function must not stay.")

    outcome, stored = outcome_of(function)
    if statement.startswith("CREATE"):
        assert isinstance(outcome.error, ValueError)
        return
    assert (outcome.error, stored.state) == (None, "completed")
    assert [each.name for each in Thing.objects.all()] == ["kept"]


# The driver of MariaDB does not show it (docs/how-to/use-mariadb.md).
@pytest.mark.postgresql
@pytest.mark.sqlite
@pytest.mark.parametrize("how", ["rollback", "commit"])
@pytest.mark.parametrize("then", ["nothing", "a statement", "a statement, and go on"])
def test_a_transaction_that_was_ended_by_the_driver_completes_nothing(how: str, then: str) -> None:
    def function() -> None:
        Thing.objects.create(name="before")
        getattr(connection.connection, how)()
        if then == "a statement":
            Thing.objects.create(name="after")
        elif then != "nothing":
            with pytest.raises(TransactionManagementError):
                Thing.objects.create(name="after")

    outcome, stored = outcome_of(function)
    assert "ended the transaction" in str(outcome.error)
    assert stored.state == "active"
    # What it has committed would be written again.
    assert Failure.from_exception(outcome.error).retryable is False
    assert Thing.objects.count() == (how == "commit")


def test_a_connection_that_breaks_in_an_atomic_handler_says_so() -> None:
    def function() -> None:
        Thing.objects.create(name="gone")
        connection.connection.close()
        Thing.objects.create(name="after")

    outcome, _ = outcome_of(function)
    # What MariaDB's driver says of a closed connection has no text.
    said = "2006" if databases.KIND == "mariadb" else "closed"
    assert said in str(outcome.error)
    assert Failure.from_exception(outcome.error).retryable is None


def test_an_error_after_the_commit_is_logged_and_the_job_is_completed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def function() -> None:
        Thing.objects.create(name="kept")
        transaction.on_commit(raises)

    def raises() -> None:
        raise LookupError("the mail server")

    outcome, stored = outcome_of(function)
    assert isinstance(outcome.error, LookupError)
    assert outcome.committed
    assert stored.state == "completed"

    in_flight, job_log = JobsInFlight(), JobLog()
    completer = Completer(
        factories.WORKER, in_flight, job_log, lambda seconds: None, lambda queues: None
    )
    in_flight.add([outcome.run])
    with caplog.at_level(logging.INFO, "django_ojs"):
        completer.handler_ended(*outcome)
        assert completer.close(60)
    (record,) = (each for each in caplog.records if each.levelno == logging.ERROR)
    said = record.getMessage()
    assert "is completed, and then a function that its handler gave to on_commit failed" in said
    assert "LookupError: the mail server" in said
    assert record.exc_info is not None
    assert "in raises" in caplog.text
    assert "claim is gone" not in caplog.text
    assert (job_log.completed_count, job_log.failed_count) == (1, 0)
    assert factories.read(outcome.run.job.id).state == "completed"


@pytest.mark.interrupts
def test_a_run_that_is_stopped_after_its_commit_is_completed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gate, outcomes, job = Gate(), Outcomes(), factories.active()
    run = run_of(lambda: transaction.on_commit(gate), atomic=True, job=job)
    executor = Executor(1, outcomes)
    in_flight, job_log = JobsInFlight(), JobLog()
    completer = Completer(
        factories.WORKER, in_flight, job_log, lambda seconds: None, lambda queues: None
    )
    try:
        in_flight.add([run])
        executor.submit([run])
        gate.has_started()
        assert run.is_committed
        assert run.revoke(Phase.RUNNING, interrupt)
        completer.fail(run, Failure(type="timeout", message="It took too long."))
        eventually(lambda: not len(in_flight), "it is followed up")
    finally:
        executor.close()
        assert completer.close(60)
    assert "was stopped" in caplog.text
    assert "claim is gone" not in caplog.text
    assert (job_log.completed_count, job_log.failed_count) == (1, 0)
    assert factories.read(job.id).state == "completed"


@pytest.mark.mariadb
@pytest.mark.parametrize("statement", ["CREATE TABLE x (id int)", "TRUNCATE ojs_thing", "BEGIN"])
def test_a_statement_before_which_mariadb_commits_is_rejected(statement: str) -> None:
    def function() -> None:
        Thing.objects.create(name="gone")
        with connection.cursor() as cursor:
            cursor.execute(statement)

    outcome, stored = outcome_of(function)
    assert "cannot execute" in str(outcome.error)
    assert stored.state == "active"
    assert not Thing.objects.exists()

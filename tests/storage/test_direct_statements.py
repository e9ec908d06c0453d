"""The statement of an enqueue without cursors: sent where nothing wants to see it, and as safe."""

from __future__ import annotations

from contextlib import nullcontext
from functools import wraps
from typing import Any

import psycopg
import pytest
from django.db import (
    IntegrityError,
    OperationalError,
    ProgrammingError,
    connection,
    connections,
    transaction,
)
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.postgresql import base as postgresql
from django.db.backends.utils import CursorWrapper
from django.db.transaction import TransactionManagementError
from django.test.utils import CaptureQueriesContext
from django.utils.asyncio import async_unsafe

import django_ojs as ojs
from django_ojs.models import Job
from django_ojs.operations import push
from django_ojs.spec.envelope import Envelope
from django_ojs.storage import database
from django_ojs.worker.executor import Executor
from tests import factories
from tests.other_session import open_transaction
from tests.testapp.models import Thing
from tests.worker.parts import Outcomes, run_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgresql]

TEXT = 'it\'s \\ a "text" — with %s, \n and 😀'


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the statements that are sent without a cursor."""
    from django_ojs.storage.dialects import direct_statements

    # A connection that another test has left may have cursors of its own.
    connection.close()
    # Django's test classes block it, and leave it on the connection when they give it back.
    monkeypatch.delitem(vars(connections["default"]), "cursor", raising=False)
    assert (connection.execute_wrappers, connection.queries_logged) == ([], False)
    collected: list[str] = []
    original = direct_statements._send

    def send(link: Any, statement: str, values: Any) -> Any:
        collected.append(statement.split("(")[0])
        return original(link, statement, values)

    monkeypatch.setattr(direct_statements, "_send", send)
    return collected


def test_enqueues_need_no_cursor_in_and_outside_of_a_transaction(
    sent: list[str],
) -> None:
    job = ojs.enqueue("test.direct", [TEXT], meta={"a": TEXT})
    assert sent[0] == "CALL ojs_push"
    assert ojs.get_job(job.id) == job.model()
    assert ojs.get_job(job.id).args == [TEXT]
    assert ojs.get_job(job.id).meta == {"a": TEXT}
    sent.clear()
    with transaction.atomic():
        Thing.objects.create(name="before")
        ojs.enqueue_batch([ojs.request("test.direct", [n, TEXT]) for n in range(3)])
        assert sent == ["CALL ojs_push_many"]
        transaction.set_rollback(True)
    assert Job.objects.count() == 1
    sent.clear()
    # The first statement of a transaction has to begin it.
    with transaction.atomic():
        ojs.enqueue("test.direct")
        transaction.set_rollback(True)
    assert sent == ["CALL ojs_push"]
    assert Job.objects.count() == 1
    connection.close()
    ojs.enqueue("test.direct")
    assert Job.objects.count() == 2


def test_a_first_statement_that_fails_ends_its_transaction(sent: list[str]) -> None:
    key = ojs.enqueue("test.direct").id
    sent.clear()
    with pytest.raises(IntegrityError), transaction.atomic():
        # As if a generated id were taken.
        push.push(Envelope(id=key, type="test.direct"), push.PLAIN)
    assert sent[0] == "CALL ojs_push"
    with transaction.atomic():
        ojs.enqueue("test.direct")
    assert Job.objects.count() == 2


def test_a_first_statement_begins_the_transaction_as_the_driver_would(sent: list[str]) -> None:
    connection.ensure_connection()
    link = connection.connection
    link.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with transaction.atomic():
        ojs.enqueue("test.direct")
        assert sent == ["CALL ojs_push"]
        with connection.cursor() as cursor:
            cursor.execute("SHOW transaction_isolation")
            assert cursor.fetchone() == ("repeatable read",)
    link.isolation_level = None
    sent.clear()
    link.read_only = False
    with transaction.atomic():
        ojs.enqueue("test.direct")
        assert sent == []
    connection.close()
    assert Job.objects.count() == 2


@pytest.mark.parametrize("sees_statements", [False, True])
def test_a_lock_that_is_free_is_taken_and_one_of_another_session_is_not(
    sees_statements: bool,
) -> None:
    def wrapper(execute: Any, *arguments: Any) -> Any:
        return execute(*arguments)

    dialect, link = database.dialect(), database.connection()
    seen = link.execute_wrapper(wrapper) if sees_statements else nullcontext()
    with (
        open_transaction(lambda: dialect.lock_subject(database.connection(), "taken")),
        transaction.atomic(),
        seen,
    ):
        assert dialect.lock_subject(link, "free", wait=False) is True
        assert dialect.lock_subject(link, "taken", wait=False) is False
        assert dialect.lock_subject(link, "waited for") is True


def test_whatever_wants_to_see_statements_sees_it(
    sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def wrapper(execute: Any, sql: str, *rest: Any) -> Any:
        seen.append(sql)
        return execute(sql, *rest)

    with connection.execute_wrapper(wrapper):
        ojs.enqueue("test.direct")
    assert "ojs_push" in seen[0]
    with CaptureQueriesContext(connection) as queries:
        ojs.enqueue("test.direct")
    assert "ojs_push" in queries[0]["sql"]

    link = connections["default"]

    def cursor(*args: Any) -> Any:
        seen.append("cursor")
        return type(link).cursor(link)

    seen.clear()
    with monkeypatch.context() as patch:
        patch.setattr(link, "cursor", cursor)
        ojs.enqueue("test.direct")
    assert seen[0] == "cursor"
    original = CursorWrapper.execute
    seen.clear()

    def execute(self: CursorWrapper, *args: Any) -> Any:
        seen.append("execute")
        return original(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(
            CursorWrapper,
            "execute",
            lambda self, *args: (seen.append(""), original(self, *args))[1],
        )
        ojs.enqueue("test.direct")
    assert seen
    seen.clear()

    class Instrumented(connection.connection.cursor_factory):  # type: ignore[misc]  # dynamic
        def execute(self, *args: Any, **kwargs: Any) -> Any:
            seen.append("execute")
            return super().execute(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(connection.connection, "cursor_factory", Instrumented)
        ojs.enqueue("test.direct")
    assert seen[0] == "execute"

    for owner, name in (
        (BaseDatabaseWrapper, "cursor"),
        (postgresql.DatabaseWrapper, "create_cursor"),
        (connection.connection.cursor_factory, "execute"),
    ):
        seen.clear()
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, noted(getattr(owner, name), seen))
            ojs.enqueue("test.direct")
        assert seen[0] == name
    assert not sent
    assert Job.objects.count() == 8


def noted(function: Any, seen: list[str]) -> Any:
    @wraps(function)
    def replacement(*args: Any, **kwargs: Any) -> Any:
        seen.append(function.__name__)
        return function(*args, **kwargs)

    return replacement


class OfTenants(postgresql.DatabaseWrapper):
    """Sets the schema of a tenant for each cursor, as the backends for that do."""

    schema = "public"

    @async_unsafe
    def _cursor(self, name: str | None = None) -> Any:
        cursor = super()._cursor(name)
        cursor.execute(f"SET search_path = {self.schema}, public")
        return cursor


@pytest.mark.parametrize("atomic", [False, True])
def test_an_enqueue_in_a_handler_needs_no_cursor_though_the_worker_reads_statements(
    sent: list[str], atomic: bool
) -> None:
    def handler() -> None:
        Thing.objects.create(name="before")
        sent.clear()
        ojs.enqueue("test.direct")
        found.extend(sent)

    found: list[str] = []
    outcomes = Outcomes()
    executor = Executor(1, outcomes)
    try:
        executor.submit([run_of(handler, atomic=atomic, job=factories.active())])
        assert outcomes.next().error is None
    finally:
        executor.close()
    # In no transaction, it has woken the workers by then.
    assert found[0] == "CALL ojs_push"
    assert Job.objects.filter(type="test.direct").count() == 1


def test_a_backend_that_sets_the_schema_gets_each_job_into_that_of_its_tenant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ojs.enqueue("test.direct", ["public"])
    link = connections["default"]
    with link.cursor() as cursor:
        cursor.execute("CREATE SCHEMA direct_tenant")
        cursor.execute("CREATE TABLE direct_tenant.ojs_job (LIKE ojs_job INCLUDING ALL)")
    monkeypatch.setattr(link, "__class__", OfTenants)
    try:
        Job.objects.count()
        monkeypatch.setattr(link, "schema", "direct_tenant", raising=False)
        ojs.enqueue("test.direct", ["tenant"])
        ojs.enqueue_batch([ojs.request("test.direct", ["tenant"])] * 2)
        assert list(Job.objects.values_list("args", flat=True)) == [["tenant"]] * 3
        monkeypatch.setattr(link, "schema", "public")
        assert list(Job.objects.values_list("args", flat=True)) == [["public"]]
    finally:
        monkeypatch.undo()
        with link.cursor() as cursor:
            cursor.execute("DROP SCHEMA direct_tenant CASCADE")
        connection.close()


def test_values_stay_apart_from_the_statement_where_the_site_wants_that(
    sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ojs.enqueue("test.direct")
    sent.clear()
    # What Django sets for OPTIONS["server_side_binding"].
    monkeypatch.setattr(connection.connection, "cursor_factory", postgresql.ServerBindingCursor)
    ojs.enqueue("test.direct", ["value"])
    assert not sent
    assert Job.objects.count() == 2


def test_an_interruption_before_the_result_is_read_leaves_the_connection_usable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ojs.enqueue("test.direct", ["first"])
    wait = psycopg.Connection.wait

    def interrupted(self: Any, *args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(psycopg.Connection, "wait", wait)
        raise KeyboardInterrupt

    monkeypatch.setattr(psycopg.Connection, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ojs.enqueue("test.direct", ["interrupted"])
    ojs.enqueue("test.direct", ["next"])
    found = Job.objects.order_by("pk").values_list("args", flat=True)
    assert list(found) == [["first"], ["next"]]


def test_a_driver_without_what_this_uses_gets_cursors(
    sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from django_ojs.storage.dialects import direct_statements

    assert direct_statements._HAS_ALL
    monkeypatch.setattr(direct_statements, "_HAS_ALL", False)
    ojs.enqueue("test.direct")
    assert not sent
    assert Job.objects.count() == 1


def test_errors_are_those_of_django_and_leave_the_connection_usable() -> None:
    with transaction.atomic():
        Thing.objects.create(name="kept")
        for change, error, state in (
            ("ALTER PROCEDURE ojs_push RENAME TO ojs_push_away", ProgrammingError, "42883"),
            ("ALTER TABLE ojs_job ADD CHECK (type <> 'test.direct')", IntegrityError, "23514"),
        ):
            with transaction.atomic():
                with connection.cursor() as cursor:
                    cursor.execute(change)
                with pytest.raises(error) as caught, transaction.atomic():
                    ojs.enqueue("test.direct")
                assert getattr(caught.value.__cause__, "sqlstate", None) == state
                transaction.set_rollback(True)
        ojs.enqueue("test.direct")
    assert Thing.objects.count() == Job.objects.count() == 1
    with transaction.atomic():
        with pytest.raises(ProgrammingError), connection.cursor() as cursor:
            cursor.execute("SELECT nothing")
        # PostgreSQL ignores all until the end of the transaction.
        with pytest.raises(Exception, match="aborted"):
            ojs.enqueue("test.direct")
        transaction.set_rollback(True)
        with pytest.raises(TransactionManagementError):
            ojs.enqueue("test.direct")
    ojs.enqueue("test.direct")
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (pid,) = cursor.fetchone()
    killer = connection.copy()
    with killer.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 60000)", [pid])
    killer.close()
    with pytest.raises(OperationalError):
        ojs.enqueue("test.direct")
    connection.close()
    ojs.enqueue("test.direct")
    assert Job.objects.count() == 3

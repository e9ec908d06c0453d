"""The statement of an enqueue without cursors: sent where nothing wants to see it, and as safe."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import (
    IntegrityError,
    OperationalError,
    ProgrammingError,
    connection,
    connections,
    transaction,
)
from django.db.backends.utils import CursorWrapper
from django.db.transaction import TransactionManagementError
from django.test.utils import CaptureQueriesContext

import django_ojs as ojs
from django_ojs.models import Job
from tests.testapp.models import Thing

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgresql]

TEXT = 'it\'s \\ a "text" — with %s, \n and 😀'


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the statements that are sent without a cursor."""
    from django_ojs.storage.dialects import direct

    collected: list[str] = []
    original = direct._send

    def send(link: Any, statement: str, values: Any) -> Any:
        collected.append(statement.split("(")[0])
        return original(link, statement, values)

    monkeypatch.setattr(direct, "_send", send)
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
    # The first statement of a transaction has to begin it.
    with transaction.atomic():
        ojs.enqueue("test.direct")
        transaction.set_rollback(True)
    assert Job.objects.count() == 1
    connection.close()
    ojs.enqueue("test.direct")
    assert Job.objects.count() == 2


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
    assert not sent
    assert Job.objects.count() == 5


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

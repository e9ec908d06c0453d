"""What a handler changes in the session of its connection ends with its job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.backends.signals import connection_created

from django_ojs.worker.executor import Executor
from django_ojs.worker.session_state import changes_session
from tests import databases
from tests.cases import together
from tests.testapp.models import Thing
from tests.worker.parts import Outcomes, run_of

pytestmark = pytest.mark.django_db(transaction=True)

CHANGES = [
    "SET search_path = elsewhere",
    " set session statement_timeout = 1",
    "/* why */ SET ROLE app",
    "SET SESSION AUTHORIZATION app",
    "SET app.tenant = '7'",
    "SELECT 1; SET TIME ZONE 'UTC'",
    "RESET ALL",
    "DISCARD TEMP",
    "SELECT set_config('app.tenant', %s, false)",
    "SELECT set_config('app.tenant', %s, %s)",
    "SELECT set_config('a', lower('b'), false) FROM ojs_thing",
    "WITH x AS (SELECT pg_advisory_lock(1)) SELECT * FROM x",
    "SELECT pg_try_advisory_lock_shared(1, 2)",
    "SELECT id, pg_advisory_lock(id) FROM ojs_thing",
    "CREATE TEMP TABLE x (id int)",
    "create local temporary table x as select 1",
    "SELECT * INTO TEMP x FROM ojs_thing",
    "LISTEN news",
    "PREPARE x AS SELECT 1",
    "DECLARE x CURSOR WITH HOLD FOR SELECT 1",
    "DO $$ BEGIN PERFORM 1; END $$",
    "CALL become(7)",
    "SELECT become_tenant(%s)",
    "SELECT app.become_tenant(%s)",
    "SELECT count_and_become(%s)",
    "SELECT nowait_lock()",
    'SELECT "app"."become_tenant"(%s)',
    "SELECT * FROM become_tenant(%s)",
    'select * from "app".become_tenant(7) AS x',
    "UPDATE pg_settings SET setting = '7' WHERE name = 'statement_timeout'",
    "PRAGMA foreign_keys = OFF",
    "PRAGMA query_only(1)",
    "ATTACH DATABASE 'x' AS y",
    "USE elsewhere",
    "SELECT GET_LOCK('x', 1)",
    "SET @tenant = 7",
    "SELECT @tenant := 7",
    "LOCK TABLES x WRITE",
]
HARMLESS = [
    "SELECT 1",
    "SELECT COUNT(*) AS __count FROM ojs_thing",
    'INSERT INTO "ojs_thing" ("name") VALUES (%s) RETURNING "id"',
    'UPDATE "ojs_thing" SET "name" = %s WHERE "id" = %s',
    "SELECT lower(name) FROM ojs_thing",
    "SELECT my_function(name) FROM ojs_thing",
    "SELECT * FROM jsonb_to_recordset(%s) AS x (a int)",
    "SELECT * FROM generate_series(1, 3)",
    "SELECT * FROM unnest(%s)",
    "SELECT * FROM (SELECT 1) AS x",
    "SELECT * FROM ojs_thing",
    "SET LOCAL search_path = elsewhere",
    "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "SET CONSTRAINTS ALL IMMEDIATE",
    "SELECT set_config('app.tenant', %s, true)",
    "SELECT set_config('a', lower('b'), TRUE), pg_notify('x', '')",
    "SELECT current_setting('lock_timeout'), set_config('lock_timeout', %s, true)",
    "SELECT pg_advisory_xact_lock(1)",
    "SELECT pg_try_advisory_xact_lock(1)",
    "SELECT now()",
    "CALL ojs_push(NULL, %s)",
    "SAVEPOINT x",
    "ROLLBACK TO SAVEPOINT x",
    "PRAGMA foreign_key_check",
    "SET STATEMENT max_statement_time=1 FOR SELECT 1",
    "LOCK TABLE ojs_thing IN SHARE MODE",
]


@pytest.mark.once
@together("statement", CHANGES)
def test_a_statement_that_changes_the_session_is_known(statement: str) -> None:
    assert changes_session(statement)


@pytest.mark.once
@together("statement", HARMLESS)
def test_what_ends_with_its_transaction_is_no_change(statement: str) -> None:
    assert not changes_session(statement)


def results(*functions: Callable[[], Any], atomic: bool = False) -> list[Any]:
    """Run handlers one after the other on one thread. Return their results."""
    outcomes = Outcomes()
    executor = Executor(1, outcomes)
    try:
        found = []
        for function in functions:
            executor.submit([run_of(function)])
            outcome = outcomes.next()
            found.append(outcome.result if outcome.error is None else outcome.error)
        return found
    finally:
        executor.close()


@pytest.fixture(autouse=True)
def _kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", 60)


def execute(*statements: str) -> Callable[[], Any]:
    """Return a handler that executes statements, and returns what the last one found."""

    def function() -> Any:
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            row = cursor.fetchone() if cursor.description else None
        return None if row is None else row[0]

    return function


def session() -> int:
    connection.ensure_connection()
    kept.append(connection.connection)  # A new one must not have its id.
    return id(connection.connection)


kept: list[Any] = []

SCENES = {
    "postgresql": [
        ("SET app.tenant = '7'", "SELECT current_setting('app.tenant', true)", [None, ""]),
        ("SET ROLE pg_monitor", "SELECT current_user = session_user", [True]),
        (
            "SELECT pg_advisory_lock(4711)",
            # Of this database: the tests of another process take this lock in theirs.
            "SELECT count(*) FROM pg_locks JOIN pg_database ON oid = database "
            "WHERE datname = current_database() AND locktype = 'advisory' AND objid = 4711",
            [0],
        ),
        ("CREATE TEMP TABLE own (id int)", "SELECT to_regclass('pg_temp.own') IS NULL", [True]),
        ("SET statement_timeout = '7h'", "SHOW statement_timeout", ["0"]),
        (
            "UPDATE pg_settings SET setting = '7000' WHERE name = 'statement_timeout'",
            "SHOW statement_timeout",
            ["0"],
        ),
    ],
    "sqlite": [
        ("PRAGMA query_only = 1", "PRAGMA query_only", [0]),
        (
            "CREATE TEMP TABLE own (id int)",
            "SELECT count(*) FROM sqlite_temp_master WHERE name = 'own'",
            [0],
        ),
    ],
    "mariadb": [
        ("SET SESSION sql_mode = 'ANSI'", "SELECT @@sql_mode = 'ANSI'", [0]),
        ("SET @tenant = 7", "SELECT @tenant", [None]),
        ("SELECT GET_LOCK('own', 1)", "SELECT IS_FREE_LOCK('own')", [1]),
    ],
}


@pytest.mark.both
@pytest.mark.parametrize("how", ["ends", "raises", "async"])
@pytest.mark.parametrize(("change", "look", "expected"), SCENES[databases.KIND])
def test_the_next_job_finds_nothing_of_it(
    change: str, look: str, expected: list[Any], how: str
) -> None:
    def function() -> None:
        execute(change)()
        if how == "raises":
            raise ValueError

    async def coroutine() -> None:
        from asgiref.sync import sync_to_async

        await sync_to_async(function)()

    async def looks() -> Any:
        from asgiref.sync import sync_to_async

        return await sync_to_async(execute(look))()

    if how == "async":
        assert results(coroutine, looks)[1] in expected
    else:
        assert results(function, execute(look))[1] in expected


@pytest.mark.both
def test_a_connection_is_kept_after_a_job_that_changed_nothing() -> None:
    def ordinary() -> None:
        with transaction.atomic():
            Thing.objects.create(name="one")
            with transaction.atomic():
                Thing.objects.update(name="two")
        list(Thing.objects.filter(name__startswith="t").iterator())

    first, _, second = results(session, ordinary, session)
    assert first == second


@pytest.mark.postgresql
def test_what_a_project_sets_in_a_new_connection_is_no_change() -> None:
    def set_up(connection: Any, **kwargs: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET app.project = 'set'")

    connection_created.connect(set_up)
    try:
        look = execute("SELECT current_setting('app.project', true)")
        first, found, second, *_ = results(session, look, session)
        assert (first, found) == (second, "set")
        assert results(execute("SET app.project = 'changed'"), look)[1] == "set"
    finally:
        connection_created.disconnect(set_up)

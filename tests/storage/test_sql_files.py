"""The statements of the dialects are files, and the transition table is what names their states."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from django_ojs.contrib import mariadb
from django_ojs.spec.errors import Conflict
from django_ojs.spec.states import State, Trigger, sources
from django_ojs.storage import dialects
from django_ojs.storage.dialects import sql_files
from django_ojs.storage.dialects.postgresql import PostgreSQL
from django_ojs.storage.dialects.sqlite import SQLite
from tests.cases import together

FOLDER = Path(dialects.__path__[0]) / "sql"
MARIADB = Path(mariadb.__path__[0])
PATHS = sorted([*FOLDER.rglob("*.sql"), *MARIADB.glob("sql/*.sql")])


def code_of(path: Path) -> str:
    """Return the SQL without comments and keys of JSON objects."""
    return re.sub(r"--.*|->>? '\w+'", "", path.read_text())


@together("path", PATHS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_file_says_what_it_does_and_names_no_state_itself(path: Path) -> None:
    assert path.read_text().startswith("-- ")
    words = set(re.findall(r"'(\w+)'", code_of(path)))
    assert not words & {state.value for state in State}
    assert ";" not in code_of(path), "one statement a file"


@together("path", PATHS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_file_is_used(path: Path) -> None:
    folder, name = path.parent.name, f'"{path.stem}"'
    modules = ("server", "base", "rows", f"{folder}_inserts", folder)
    paths = [FOLDER.parent / f"{module}.py" for module in modules]
    sources = [path for path in paths if path.exists()]
    if path.is_relative_to(MARIADB):
        sources += MARIADB.glob("*.py")
    # A part of others.
    part = rf"|{path.stem}=load\([^,]+, {name}\)"
    used = rf"self\._(rows|run|claimed)\(connection, {name}|(SQL|self\.sql)\[{name}\]{part}"
    # A kind of row, for `Server.read`, and how runs end, for `Dialect.end_runs`.
    used += rf"|statement: ClassVar = {name}|EndOfRun = Literal\[[^]]*{name}"
    assert any(re.search(used, source.read_text()) for source in sources)


def test_a_statement_moves_jobs_as_the_table_allows() -> None:
    for sql in (PostgreSQL.sql, SQLite.sql):
        claim, complete, promote = sql["claim"], sql["complete"], sql["promote"]
        assert "SET state = 'active'" in claim
        assert "state = 'available'" in claim
        assert "SET state = 'completed'" in complete
        assert "state = 'active'" in complete
        assert "SET state = 'available'" in promote
        assert "state IN ('scheduled', 'retryable')" in promote
    assert sources(Trigger.TIMER, State.AVAILABLE) == (State.SCHEDULED, State.RETRYABLE)


def test_no_comment_is_sent_to_the_database() -> None:
    assert "--" not in sql_files.load("postgresql", "claim", deadline_when_started="NULL")


def test_a_placeholder_of_a_transition_that_the_table_does_not_have_is_rejected() -> None:
    with pytest.raises(Conflict):
        sql_files.before(Trigger.ACK, State.AVAILABLE)
    with pytest.raises(KeyError):
        sql_files.load("postgresql", "claim")

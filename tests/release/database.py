"""The database of a release, as SQL: `python -m tests.release.database dump VERSION.sql` makes one.

A release keeps the dump in the folder databases beside this file, and later ones migrate it:

    python -m tests.release.database dump FILE     what this version's `migrate` makes, with jobs
    python -m tests.release.database check FILE    restore it, migrate, compare the schema with that
                                                   of a fresh database, and work the jobs that wait

Each is a process of its own, because a project begins with its database.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import django

#: The dumps of the releases, a file each.
DATABASES = Path(__file__).parent / "databases"


def dump(target: Path) -> None:
    """Write what `migrate` makes now, and jobs in each state that a project has, as SQL."""
    with tempfile.TemporaryDirectory() as folder:
        path = _use(Path(folder))
        _migrate()
        _fill()
        with closing(sqlite3.connect(path)) as database:
            target.write_text("\n".join([_made_by(), *database.iterdump()]) + "\n")


def check(source: Path) -> None:
    """Restore a dump, migrate it, compare its schema with a fresh one's, and work its jobs."""
    with tempfile.TemporaryDirectory() as folder:
        path = _use(Path(folder))
        with closing(sqlite3.connect(path)) as database:
            database.executescript(source.read_text())
        _migrate()
        # Another version of Django may write the same condition in another way.
        is_same_django = source.read_text().startswith(_made_by())
        found = schema(path, whole=is_same_django)
        wanted = _fresh_schema(folder, whole=is_same_django)
        assert found == wanted, sorted(set(found.items()) ^ set(wanted.items()))
        _work()


def _made_by() -> str:
    return f"-- With Django {django.VERSION[0]}.{django.VERSION[1]}"


def schema(path: Path, *, whole: bool) -> dict[str, str]:
    """Return the statement of each table, index and trigger, without what only looks different.

    A table that a migration has made anew has the same columns in the same order, but other white
    space and quotes. Not the whole: of a table and of an index the columns alone.
    """
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL")
        found = {
            (kind, name): " ".join(sql.replace('"', "").split())
            for kind, name, sql in rows.fetchall()
            if not name.startswith("sqlite_")
        }
        if not whole:
            for kind, name in found:
                if kind in _COLUMNS:
                    columns = database.execute(_COLUMNS[kind], [name]).fetchall()
                    found[kind, name] = repr(columns)
    return {f"{kind} {name}": text for (kind, name), text in found.items()}


_COLUMNS = {
    "table": 'SELECT name, type, "notnull", pk FROM pragma_table_info(?)',
    "index": "SELECT seqno, name, desc FROM pragma_index_xinfo(?)",
}


def _fresh_schema(folder: str, *, whole: bool) -> dict[str, str]:
    from django.core.management import call_command
    from django.db import connections

    fresh = Path(folder) / "fresh.sqlite3"
    connections["default"].close()
    connections["default"].settings_dict["NAME"] = str(fresh)
    call_command("migrate", verbosity=0)
    found = schema(fresh, whole=whole)
    connections["default"].close()
    connections["default"].settings_dict["NAME"] = os.environ["OJS_RELEASE_DATABASE"]
    return found


def _use(folder: Path) -> Path:
    path = folder / "db.sqlite3"
    os.environ["OJS_RELEASE_DATABASE"] = str(path)
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.release.settings"
    django.setup()
    return path


def _migrate() -> None:
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


#: The args of the jobs that wait in a dump, and those of a workflow's steps.
WAITING, STEPS = ["waits"], ["first", "second"]


def _fill() -> None:
    """Leave jobs in each state, a workflow, a schedule, a queue with a bound, and an API key."""
    from datetime import timedelta

    import django_ojs as ojs
    from django_ojs.extensions.statistics import rollups
    from django_ojs.operations import queues
    from django_ojs.operations.access import api_keys
    from django_ojs.operations.ack import ack
    from django_ojs.operations.fail import fail
    from django_ojs.operations.fetch import fetch
    from django_ojs.spec.failure import Failure
    from django_ojs.spec.scopes import Scope

    queues.configure("kept", {"backpressure": {"max_depth": 50}})
    api_keys.create(name="kept", scopes=[Scope.PRODUCER], queues=["kept"])
    for _ in range(3):
        ojs.enqueue("kept.job", ["ends"], queue="kept")
    # The third stays active: its worker is gone.
    completed, retried, _ = fetch(["kept"], count=3)
    ack(completed.id, result={"kept": True})
    fail(retried.id, Failure(type="KeptError", message="kept"))
    ojs.cancel(ojs.enqueue("kept.job", ["cancelled"], queue="kept").id)
    ojs.enqueue("kept.job", ["later"], queue="kept", scheduled_at=timedelta(days=36500))
    ojs.enqueue("kept.job", ["pending"], queue="kept", pending=True)
    ojs.enqueue("kept.job", WAITING, queue="kept", tags=["kept"], meta={"kept": 1})
    ojs.chain(*(ojs.request("kept.job", [each], queue="kept") for each in STEPS)).enqueue()
    rollups.flush()


def _work() -> None:
    import django_ojs as ojs
    from django_ojs.extensions.statistics import rollups
    from django_ojs.extensions.workflows.operations.advance import advance_due
    from django_ojs.models import Job
    from django_ojs.operations.ack import ack
    from django_ojs.operations.fetch import fetch

    before = Job.objects.count()
    worked = []
    while jobs := fetch(["kept"], count=1):
        worked += jobs[0].args
        ack(jobs[0].id, result=None)
        advance_due()  # As a worker does.
    assert {*WAITING, *STEPS} <= set(worked), worked
    assert Job.objects.get(args=["waits"]).tags == ["kept"]
    assert before <= Job.objects.count() <= before + len(STEPS)
    assert ojs.enqueue("kept.job", ["new"], queue="kept").id
    rollups.flush()


if __name__ == "__main__":
    {"dump": dump, "check": check}[sys.argv[1]](Path(sys.argv[2]))

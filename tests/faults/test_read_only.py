"""The database turns read-only for a while, as it does in a failover, while jobs run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connection

from django_ojs.models import Worker
from tests.testapp import worker_jobs as handlers
from tests.worker.acceptance.conftest import Start
from tests.worker.acceptance.conftest import start as start
from tests.worker.acceptance.ledger import (
    ALIASES,
    becomes,
    history,
    marks,
    release,
    started,
    stored,
)
from tests.worker.waiting import eventually

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=ALIASES),
    pytest.mark.postgresql,
    pytest.mark.slow,
]

BEAT = 1.0


def switch(on: bool) -> None:
    """Let all sessions but this one be read-only, or not, and end those that there are."""
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = off")
        name = connection.ops.quote_name(connection.settings_dict["NAME"])
        value = "SET default_transaction_read_only = on" if on else "RESET ALL"
        cursor.execute(f"ALTER DATABASE {name} {value}")
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


@contextmanager
def read_only() -> Iterator[None]:
    try:
        switch(True)
        yield
    finally:
        switch(False)


def silent_for(seconds: float) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT bool_and(beat_at < clock_timestamp() - %s * interval '1 second')"
            " FROM ojs_worker",
            [seconds],
        )
        return bool(cursor.fetchone()[0])


def test_completions_are_kept_and_no_worker_counts_as_dead(start: Start) -> None:
    jobs = [stored(handlers.wait.enqueue()) for _ in range(6)]
    trees = [start("--threads", "3", ojs={"HEARTBEAT_INTERVAL": BEAT}).ready() for _ in range(2)]
    for job in jobs:
        started(job)
    with read_only():
        for job in jobs:
            release(job)
        eventually(lambda: all("done" in marks(job) for job in jobs), "the handlers have ended")
        # Longer than three heartbeats, after which a silent worker is dead.
        eventually(lambda: silent_for(6 * BEAT), "no worker could send a heartbeat")
        for tree in trees:
            tree.says("The database ")
    for job in jobs:
        becomes(job, "completed")
        assert history(job) == []
        assert job.spent == 1
    assert Worker.objects.count() == 2
    for tree in trees:
        assert tree.log.count("; trying again.") == 1, tree.log
        for word in ("could not be stored", "Traceback", "ERROR", "is gone", "died"):
            assert word not in tree.log, tree.log

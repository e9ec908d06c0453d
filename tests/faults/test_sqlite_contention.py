"""Eight processes on SQLite: none gets "database is locked"."""

from __future__ import annotations

import pytest

from tests.databases import ALIASES
from tests.faults.conftest import FULL, Report
from tests.faults.site import Site

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=ALIASES),
    pytest.mark.sqlite,
    pytest.mark.slow,
]


def test_eight_processes_on_sqlite_see_no_lock_error(site: Site, report: Report) -> None:
    site.start("--processes", "4", "--threads", "2").ready(4)
    for _ in range(4):
        site.enqueue(1_000 if FULL else 150, milliseconds=1, ways="one,batch,savepoint")
    site.enqueued(200)
    site.drained(200)
    verdict = site.verdict()
    report(verdict.line)
    verdict.good()
    assert site.known("error") == []
    assert "locked" not in site.logs()
    assert "database is away" not in site.logs()
    site.completed_once()

"""Promise 1: jobs and rows share their fate, whatever becomes of the transaction."""

from __future__ import annotations

import threading

import pytest
from django.db import transaction

import django_ojs as ojs
from django_ojs.spec import ids
from tests.databases import ALIASES
from tests.factories import own_connections
from tests.faults import ledger
from tests.faults.conftest import FULL, Report
from tests.faults.site import Site
from tests.worker.waiting import BOUND, eventually

pytestmark = [
    pytest.mark.smoke,
    pytest.mark.django_db(transaction=True, databases=ALIASES),
    pytest.mark.slow,
]


def test_promise_1_what_was_rolled_back_never_runs_and_what_was_committed_does(
    site: Site, report: Report
) -> None:
    site.start("--processes", "2", "--threads", "4").ready(2)
    for _ in range(3):
        site.enqueue(1_000 if FULL else 200, milliseconds=1)
    site.enqueued(120)
    site.drained(120)
    verdict = site.verdict()
    rolled_back = set(site.known("rolled-back"))
    report(f"{verdict.line} (rolled back {len(rolled_back)})")
    assert len(rolled_back) > 100
    verdict.good()
    assert verdict.duplicated == 0
    assert verdict.executed == verdict.acknowledged
    assert verdict.attempted == verdict.acknowledged + len(rolled_back)
    assert site.stored_with_their_rows() == set(site.known("acknowledged"))
    site.completed_once()


@pytest.mark.postgresql  # SQLite has one writer: no other transaction commits meanwhile.
def test_a_low_id_that_commits_late_still_runs(site: Site) -> None:
    low, *high = ids.many(20)
    stored, commit = threading.Event(), threading.Event()

    def commit_late() -> None:
        with own_connections(), transaction.atomic():
            ojs.enqueue("faults.effect", id=low)
            stored.set()
            commit.wait(BOUND)

    site.start("--threads", "4").ready()
    slow = threading.Thread(target=commit_late)
    slow.start()
    try:
        assert stored.wait(BOUND)
        for key in high:
            ojs.enqueue("faults.effect", id=key)
        eventually(lambda: ledger.count("done") == len(high), "the later ids have run")
        assert str(low) not in ledger.done()
    finally:
        commit.set()
        slow.join(BOUND)
    eventually(lambda: str(low) in ledger.done(), "the low id has run")
    site.drained()
    job = site.jobs.get(pk=low)
    assert (job.state, job.attempt) == ("completed", 1)

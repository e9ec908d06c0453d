"""One statement in fifty fails with a lock or statement timeout, in the worker."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.databases import ALIASES
from tests.faults import ledger
from tests.faults.conftest import FULL, Report
from tests.faults.site import Site

JOBS = 5_000 if FULL else 600

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=ALIASES),
    pytest.mark.slow,
]


def test_statements_that_fail_now_and_then_lose_nothing_and_run_nothing_twice(
    site: Site, report: Report
) -> None:
    options = {"LOG_TRACEBACKS": False}  # Those of handlers, which fail here too.
    tree = site.start("--processes", "2", "--threads", "4", sabotage={"fail": 0.02}, ojs=options)
    site.enqueue(JOBS, milliseconds=2, pause=0.001)
    site.enqueued(120)
    site.drained(120)
    verdict = site.verdict()
    report(f"2 % of statements failed: {verdict.line}")
    verdict.good()
    # An atomic handler's own transaction is hit too: a failed attempt, rolled back whole. What a
    # worker writes for itself it tries again, and the handler is not run for it.
    effects = site.jobs.filter(type="faults.effect").values_list("pk", flat=True)
    times = Counter(start.job for start in ledger.starts())
    assert {times[str(key)] for key in effects} == {1}
    site.completed_once()
    assert "died" not in tree.log
    assert "Traceback" not in tree.log


def test_each_statement_may_fail_when_a_process_first_runs_it(site: Site, report: Report) -> None:
    # Those of the start as well: a migration may hold a lock while a new release starts.
    tree = site.start("--threads", "4", sabotage={"fail_once": True}, ojs={"LOG_TRACEBACKS": False})
    site.enqueue(50, milliseconds=2)
    site.enqueued(120)
    site.drained(120)
    verdict = site.verdict()
    report(f"each statement failed once: {verdict.line}")
    verdict.good()
    assert "trying again" in tree.log
    assert "died" not in tree.log
    assert "Traceback" not in tree.log

"""Promise 6: notifications are a hint. Without them everything works, at most one poll later."""

from __future__ import annotations

import time
from statistics import median

import pytest

from tests.databases import ALIASES
from tests.faults import ledger
from tests.faults.conftest import Report
from tests.faults.site import Site
from tests.testapp import fault_jobs as handlers
from tests.worker.acceptance.ledger import stored
from tests.worker.waiting import eventually

pytestmark = [pytest.mark.django_db(transaction=True, databases=ALIASES), pytest.mark.slow]

POLL = 0.4


def test_promise_6_without_notify_an_idle_worker_finds_each_job_with_its_next_poll(
    site: Site, report: Report
) -> None:
    # The producer is this process, which sends NOTIFY; no process listens.
    site.start(sabotage={"deaf": True}, ojs={"POLL_INTERVAL": POLL}).ready()
    waits = []
    for number in range(1, 9):
        # At another moment between two polls each time.
        eventually(lambda: site.jobs.filter(state="completed").count() == number - 1, "it is idle")  # noqa: B023  # called at once
        time.sleep(POLL * site.dice.random())
        before = time.monotonic()
        job = stored(handlers.effect.enqueue())
        eventually(lambda: ledger.count("start") == number, "it was found")  # noqa: B023  # called at once
        (start,) = [start for start in ledger.starts() if start.job == str(job.pk)]
        waits.append(start.at - before)
    site.drained()
    report(
        f"pickup without NOTIFY, polls {POLL:.1f} s apart: "
        f"median {median(waits):.3f} s, worst {max(waits):.3f} s"
    )
    assert all(start.attempt == 1 for start in ledger.starts())

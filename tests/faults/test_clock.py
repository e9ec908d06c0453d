"""The clock of the application jumps: the database's clock decides what is due and what lapsed."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from django_ojs.models import Attempt
from tests.databases import ALIASES
from tests.faults import ledger
from tests.faults.site import Site
from tests.testapp import fault_jobs as handlers
from tests.worker.acceptance.ledger import stored
from tests.worker.waiting import eventually

pytestmark = [pytest.mark.django_db(transaction=True, databases=ALIASES), pytest.mark.slow]

DELAY = 3.0


@pytest.mark.parametrize("jump", [7200.0, -7200.0])
def test_a_clock_that_jumps_two_hours_neither_hurries_nor_holds_nor_repeats_a_job(
    site: Site, jump: float
) -> None:
    # The jump comes while the first jobs run. Python's clocks are turned inside the worker, all
    # that the package reads; the machine's own cannot be.
    sabotage = {"clock": jump, "after": 1.5}
    tree = site.start("--threads", "4", sabotage=sabotage).ready()
    before = time.monotonic()
    later = stored(handlers.effect.options(scheduled_at=timedelta(seconds=DELAY)).enqueue())
    running = [stored(handlers.effect.enqueue(2_000)) for _ in range(3)]
    through = {str(job.pk) for job in running}
    eventually(lambda: through <= ledger.done(), "those that ran through the jump are done")
    eventually(lambda: str(later.pk) in ledger.done(), "the scheduled one has run")
    after = [stored(handlers.effect.enqueue()) for _ in range(3)]
    site.drained()
    starts = {start.job: start for start in ledger.starts()}
    assert len(starts) == len(ledger.starts()) == len(running) + len(after) + 1
    assert starts[str(later.pk)].at - before >= DELAY - 0.1
    assert not Attempt.objects.exists()  # Nothing lapsed, timed out or was given up.
    assert tree.process.poll() is None
    # It did jump.
    noted = stored(handlers.now.enqueue())
    site.drained()
    noted.refresh_from_db()
    assert noted.result == pytest.approx(time.time() + jump, abs=600)


def test_workers_whose_clocks_are_ten_minutes_apart_share_the_work(site: Site) -> None:
    ahead, behind = (
        site.start(
            *("--threads", "2"),
            ojs={"HEARTBEAT_INTERVAL": 1},
            sabotage={"clock": seconds, "after": 0.0},
        ).ready()
        for seconds in (300.0, -300.0)
    )
    before = time.monotonic()
    later = stored(handlers.effect.options(scheduled_at=timedelta(seconds=DELAY)).enqueue())
    # Longer than three heartbeats, after which a worker that is silent is dead.
    running = [stored(handlers.effect.enqueue(4_000)) for _ in range(4)]
    site.drained()
    starts = {start.job: start for start in ledger.starts()}
    assert len(starts) == len(ledger.starts()) == len(running) + 1
    assert starts[str(later.pk)].at - before >= DELAY - 0.1
    assert {start.pid for start in starts.values()} == {*ahead.children(), *behind.children()}
    assert not Attempt.objects.exists()
    assert "died" not in site.logs()

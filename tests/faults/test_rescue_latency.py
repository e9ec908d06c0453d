"""How long the jobs of a killed worker wait until another has them, with the default settings."""

from __future__ import annotations

from statistics import median

import pytest

from tests.databases import ALIASES
from tests.faults import ledger
from tests.faults.conftest import FULL, Report
from tests.faults.site import Site
from tests.testapp import fault_jobs as handlers
from tests.worker.acceptance.ledger import stored
from tests.worker.processes import Tree
from tests.worker.waiting import eventually

ROUNDS = 10 if FULL else 2
#: Three missed beats of the default five seconds: what finds a dead worker when nothing else does.
SILENCE = 15.0

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=ALIASES),
    pytest.mark.slow,
]


def start(site: Site) -> Tree:
    return site.start(ojs={"POLL_INTERVAL": 0.5}).ready()


@pytest.mark.postgresql  # SQLite has no sessions that end with their process.
@pytest.mark.parametrize("what", ["child", "tree"])
def test_the_jobs_of_a_killed_worker_are_claimed_again_soon(
    site: Site, report: Report, what: str
) -> None:
    waits = []
    older = start(site)
    for number in range(ROUNDS):
        # The older of the two does the maintenance for both: every other time it is the one that
        # dies, and the other has to take that over first.
        newer = start(site)
        victim, older = (newer, older) if number % 2 else (older, newer)
        before = ledger.count("start")
        # More than one worker takes at a time, so that both have some.
        jobs = {str(stored(handlers.effect.enqueue(800)).pk) for _ in range(20)}
        eventually(lambda before=before: ledger.count("start") == before + 20, "all run")  # type: ignore[misc]  # mypy has no inference for a default
        (child,) = victim.children()
        if what == "child":
            killed_at = site.kill(victim, child)
        else:
            killed_at = site.kill(victim, victim.pid)
            site.kill(victim, child)
        site.drained()
        again = [s.at - killed_at for s in ledger.starts() if s.run == 2 and s.job in jobs]
        assert again, "the killed worker had jobs"
        waits += again
        victim.kill()
    report(
        f"rescue after the kill of a {what}: median {median(waits):.2f} s, "
        f"worst {max(waits):.2f} s, {len(waits)} jobs in {ROUNDS} rounds"
    )
    assert max(waits) < SILENCE
    verdict = site.verdict()
    assert not verdict.unexplained


@pytest.mark.sqlite  # On PostgreSQL the end of its session says so before (see `test_pgbouncer`).
@pytest.mark.mariadb
def test_a_worker_that_just_falls_silent_is_given_up_after_three_beats(
    site: Site, report: Report
) -> None:
    job = stored(handlers.effect.enqueue(5_000))
    victim = site.start(ojs={"HEARTBEAT_INTERVAL": 1}).ready()
    eventually(lambda: ledger.count("start") == 1, "it runs")
    # At once: on a busy machine the job could end before the other worker is up.
    killed_at = site.kill(victim, victim.pid)
    for child in victim.children():
        site.kill(victim, child)
    site.start(ojs={"HEARTBEAT_INTERVAL": 1}).ready()
    eventually(lambda: ledger.count("start") == 2, "another has it")
    report(f"three beats of 1 s: again after {ledger.starts()[1].at - killed_at:.2f} s")
    site.drained()
    job.refresh_from_db()
    assert (job.state, job.attempt, job.result) == ("completed", 2, "run 2")

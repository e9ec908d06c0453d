"""Promise 1: an enqueuer killed at random, often while its COMMIT is on its way."""

from __future__ import annotations

import pytest

from tests.databases import ALIASES
from tests.faults.conftest import FULL, Report
from tests.faults.site import Site, until
from tests.worker.waiting import BOUND

#: Producers that are killed.
KILLS = 100 if FULL else 4

pytestmark = [
    pytest.mark.smoke,
    pytest.mark.django_db(transaction=True, databases=ALIASES),
    pytest.mark.slow,
    pytest.mark.timeout(900 + KILLS * 5),
]


def test_promise_1_a_job_is_stored_if_and_only_if_its_transaction_commits(
    site: Site, report: Report
) -> None:
    unknown: set[str] = set()
    # A kill between two transactions shows nothing.
    while len(site.enqueuers) < KILLS or (not unknown and len(site.enqueuers) < 10 * KILLS):
        number = len(site.enqueuers)
        # Nothing but transactions, back to back: most kills hit one.
        producer = site.enqueue(1_000_000, milliseconds=0, ways="one,batch,savepoint")
        log = site.folder / f"enqueuer-{number}.log"
        most = site.dice.randrange(2_000, 40_000)
        assert until(lambda log=log, most=most: log.exists() and log.stat().st_size > most), (  # type: ignore[misc]  # mypy has no inference for a default
            (site.folder / f"enqueuer-{number}.err").read_text()
        )
        producer.kill()
        producer.wait(BOUND)
        attempted, acknowledged = (set(site.known(k)) for k in ("attempted", "acknowledged"))
        rolled_back = set(site.known("rolled-back"))
        unknown = attempted - acknowledged - rolled_back
    stored = site.stored_with_their_rows()
    report(
        f"{len(site.enqueuers)} producers killed: attempted {len(attempted)} "
        f"acknowledged {len(acknowledged)} "
        f"rolled back {len(rolled_back)} stored {len(stored)} cut off {len(unknown)}, "
        f"of which stored {len(unknown & stored)}"
    )
    assert unknown, "no kill hit a transaction"
    assert acknowledged <= stored <= attempted
    assert not stored & rolled_back
    # One worker runs all that is stored and nothing else.
    site.start("--threads", "8")
    site.drained(180)
    verdict = site.verdict()
    report(verdict.line)
    verdict.good()
    assert verdict.executed == len(stored)
    site.completed_once()

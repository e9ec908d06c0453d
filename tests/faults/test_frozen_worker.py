"""Promise 4: a worker that was frozen past its lease wakes up, and can change nothing."""

from __future__ import annotations

import os
import signal

import pytest

from tests.databases import ALIASES
from tests.faults import ledger
from tests.faults.site import Site
from tests.testapp import fault_jobs as handlers
from tests.testapp.models import Thing
from tests.worker.acceptance.ledger import stored
from tests.worker.waiting import eventually

pytestmark = [pytest.mark.django_db(transaction=True, databases=ALIASES), pytest.mark.slow]

#: Frozen only once the handler runs, thawed while it still has this long to go.
WORK_MS = 2000


@pytest.mark.parametrize(
    "kind",
    [
        "effect",
        # Frozen inside its transaction it would hold SQLite's one lock.
        pytest.param("atomic", marks=(pytest.mark.postgresql, pytest.mark.mariadb)),
    ],
)
@pytest.mark.parametrize("thawed", ["while the other works", "when the other is done"])
def test_promise_4_a_worker_thawed_after_its_lease_cannot_change_the_job(
    site: Site, kind: str, thawed: str
) -> None:
    handler = handlers.effect if kind == "effect" else handlers.atomic
    # Beats far apart: it is the lease that ends, not the worker's three beats.
    ojs = {"HEARTBEAT_INTERVAL": 20}
    first = site.start("--threads", "1", ojs=ojs).ready()
    job = stored(handler.options(visibility_timeout=4).enqueue(WORK_MS))
    eventually(lambda: ledger.count("start") == 1, "the job runs")
    (frozen,) = first.children()
    os.kill(frozen, signal.SIGSTOP)
    try:
        site.start("--threads", "1", ojs=ojs).ready()
        eventually(lambda: ledger.count("start") == 2, "another worker has it")
        if thawed == "when the other is done":
            site.drained()
    finally:
        os.kill(frozen, signal.SIGCONT)
    # Either its handler ends and the result is rejected, or a heartbeat that was due before tells
    # that the claim is gone, and the handler is interrupted: then it never notes that it is done.
    eventually(lambda: "its claim is gone" in first.log, "the continued worker logged it")
    site.drained()
    job.refresh_from_db()
    assert (job.state, job.attempt, job.run, job.result) == ("completed", 2, 2, "run 2")
    assert [(a.run, a.outcome) for a in job.attempts.all()] == [(1, "lapsed")]
    assert Thing.objects.count() == (1 if kind == "atomic" else 0)
    assert not site.verdict().unexplained
    # It is as good as new.
    again = stored(handlers.effect.options(queue="default").enqueue())
    site.drained()
    again.refresh_from_db()
    assert (again.state, again.attempt) == ("completed", 1)

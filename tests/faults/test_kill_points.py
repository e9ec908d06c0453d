"""Promise 3: a worker killed at the worst moments, each of them on purpose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.databases import ALIASES
from tests.faults import ledger
from tests.faults.checker import Fault
from tests.faults.site import Site
from tests.testapp import fault_jobs as handlers
from tests.testapp.models import Thing
from tests.worker.acceptance.ledger import stored

pytestmark = [
    pytest.mark.smoke,
    pytest.mark.django_db(transaction=True, databases=ALIASES),
    pytest.mark.slow,
]


def worked_through_a_kill(site: Site, where: str, tmp_path: Path) -> int:
    """Run what is there with a worker that is killed once at a point. Return the dead process."""
    flag = tmp_path / "killed"
    tree = site.start("--threads", "2", sabotage={"die": where, "flag": str(flag)})
    site.drained()
    pid = int(flag.read_text())
    assert f"(pid {pid}) died: killed by SIGKILL" in tree.log
    site.faults.append(Fault(kind="kill", pid=pid))
    return pid


def ran(job: Any) -> list[tuple[str, int]]:
    return [(line.event, line.run) for line in ledger.lines() if line.job == str(job.pk)]


def test_killed_right_after_the_claim_the_jobs_run_once_in_a_second_attempt(
    site: Site, tmp_path: Path
) -> None:
    jobs = [stored(handlers.effect.enqueue()) for _ in range(2)]
    worked_through_a_kill(site, "claimed", tmp_path)
    for job in jobs:
        assert ran(job) == [("start", 2), ("done", 2)]
        job.refresh_from_db()
        assert (job.state, job.attempt, job.result) == ("completed", 2, "run 2")
        (attempt,) = job.attempts.all()
        assert (attempt.run, attempt.outcome) == (1, "lost")
        assert attempt.error["type"] == "worker_death"


def test_promise_3_killed_between_effect_and_ack_the_job_runs_again_with_a_higher_attempt(
    site: Site, tmp_path: Path
) -> None:
    job = stored(handlers.effect.enqueue())
    dead = worked_through_a_kill(site, "acknowledging", tmp_path)
    assert ran(job) == [("start", 1), ("done", 1), ("start", 2), ("done", 2)]
    first, second = ledger.starts()
    assert (first.attempt, second.attempt) == (1, 2)
    assert first.pid == dead != second.pid
    job.refresh_from_db()
    assert (job.state, job.result) == ("completed", "run 2")
    assert site.verdict().unexpected == {str(job.pk)}  # No enqueuer wrote it down.
    assert not site.verdict().unexplained


@pytest.mark.postgresql  # SQLite commits a statement that returns rows when they have been read.
def test_killed_after_the_ack_and_before_its_response_the_job_does_not_run_again(
    site: Site, tmp_path: Path
) -> None:
    job = stored(handlers.effect.enqueue())
    flag = tmp_path / "killed"
    site.start(sabotage={"die": "acknowledged", "flag": str(flag)})
    site.drained()
    later = stored(handlers.effect.enqueue())
    site.drained()
    assert ran(job) == [("start", 1), ("done", 1)]
    assert ran(later) == [("start", 1), ("done", 1)]
    assert int(flag.read_text()) == ledger.starts()[0].pid != ledger.starts()[1].pid


@pytest.mark.parametrize("where", ["acknowledging", "acknowledged"])
def test_an_atomic_handler_killed_before_commit_leaves_neither_effect_nor_completion(
    site: Site, tmp_path: Path, where: str
) -> None:
    job = stored(handlers.atomic.enqueue())
    dead = worked_through_a_kill(site, where, tmp_path)
    # It came to its end, and its ACK was in the transaction that the kill undid.
    assert ran(job) == [("start", 1), ("done", 1), ("start", 2), ("done", 2)]
    assert ledger.starts()[0].pid == dead
    assert list(Thing.objects.values_list("name", flat=True)) == [f"effect {job.pk}"]
    job.refresh_from_db()
    assert (job.state, job.attempt, job.result) == ("completed", 2, "run 2")

"""A worker that works for long: its memory stays flat, its connections as many as they were."""

from __future__ import annotations

import os
import time
from pathlib import Path
from statistics import median

import pytest
from django.db import connection

import django_ojs as ojs
from tests.databases import ALIASES, KIND
from tests.faults.conftest import FULL, Report
from tests.faults.site import Site
from tests.worker.processes import Tree

SECONDS = float(os.environ.get("OJS_FAULTS_SOAK") or (60 if FULL else 20))
#: Seconds between two samples.
EVERY = 0.5
#: The allocator may round up once; a leak of this much in the time would show.
SLACK_MB = 6.0

pytestmark = [
    pytest.mark.storm,
    pytest.mark.django_db(transaction=True, databases=ALIASES),
    pytest.mark.slow,
    pytest.mark.timeout(SECONDS + 900),
]

_CONNECTIONS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend'
"""


def memory(tree: Tree) -> float:
    """Return the resident memory of a tree, in MB."""
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in tree.members())
    return pages * os.sysconf("SC_PAGESIZE") / 2**20


def connected() -> int:
    if KIND != "postgresql":
        return 0
    with connection.cursor() as cursor:
        cursor.execute(_CONNECTIONS)
        return int(cursor.fetchone()[0])


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_a_soak_leaves_memory_flat_and_connections_as_they_were(site: Site, report: Report) -> None:
    tree = site.start("--processes", "2", "--threads", "4").ready(2)
    enqueuer = site.enqueue(10**9, milliseconds=3, pause=0.005)
    samples: list[tuple[float, int]] = []
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        samples.append((memory(tree), connected()))
        time.sleep(EVERY)
    enqueuer.kill()
    site.enqueued()
    site.drained()
    # The first half is for warming up: threads start, caches fill.
    settled = samples[len(samples) // 2 :]
    middle, last = settled[: len(settled) // 2], settled[len(settled) // 2 :]
    before, after = (median(size for size, _ in part) for part in (middle, last))
    most = [max(number for _, number in part) for part in (middle, last)]
    verdict = site.verdict()
    report(
        f"{SECONDS:.0f} s, {verdict.executed} jobs: memory {before:.1f} MB, at the end "
        f"{after:.1f} MB; connections at most {most[0]}, at the end {most[1]}"
    )
    assert after - before < max(SLACK_MB, before * 0.03)
    assert most[1] <= most[0] + 1
    verdict.good()
    assert verdict.duplicated == 0
    site.completed_once()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize("kind", ["faults.fails_large", "faults.fails_large_async"])
def test_failures_of_large_jobs_leave_memory_flat(site: Site, report: Report, kind: str) -> None:
    megabytes, failures = 60, 20
    # A traceback with the values of local variables is not asked for: the log has none.
    tree = site.start("--processes", "1", "--threads", "1").ready(1)
    before = memory(tree)
    ojs.enqueue_batch([ojs.Request(type=kind, args=[megabytes])] * failures)
    site.drained()
    after = memory(tree)
    report(f"{failures} failures of {megabytes} MB: memory {before:.0f} MB, then {after:.0f} MB")
    assert site.jobs.filter(state="discarded").count() == failures
    # One of them, which the allocator may keep, and what a first failure imports.
    assert after - before < 2 * megabytes

"""More worker processes than the server has connections for: some work, the others wait."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator

import pytest

from tests.databases import ALIASES
from tests.faults.bouncer import PROGRAM, bouncer
from tests.faults.cluster import Cluster, own_cluster
from tests.faults.conftest import Report
from tests.faults.site import Site
from tests.worker.waiting import BOUND, eventually

PROCESSES = 30
CONNECTIONS = 40
JOBS = 300
#: Attempts of a process to connect, a second: of five threads, each waits a second and a half or
#: longer once it has failed five times.
MOST_ATTEMPTS = 5
#: When this many attempts were rejected, the pauses are long.
EARLY_ATTEMPTS = PROCESSES * 5 * 5

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=ALIASES),
    pytest.mark.postgresql,
    pytest.mark.storm,
]


@pytest.fixture
def cluster(site: Site) -> Iterator[Cluster]:
    """Return a server with few connections that holds the jobs."""
    made = own_cluster(max_connections=str(CONNECTIONS))
    with made as server, site.with_jobs_on(server.settings):
        yield server


def rejected(cluster: Cluster) -> int:
    """Return how many connections the server has rejected."""
    return cluster.log.read_text().count("too many clients already")


def test_without_a_pooler_the_server_is_not_overrun_and_work_goes_on_when_there_is_room(
    site: Site, cluster: Cluster, report: Report
) -> None:
    # Connected before: a program that finds no connection cannot enqueue either.
    enqueuer = site.enqueue(JOBS, milliseconds=20, pause=0.05)
    eventually(lambda: site.known("acknowledged"), "the enqueuer is connected")
    few = site.start("--processes", "4", "--threads", "1")
    # Threads of many processes may have all connections, and none of them all that it needs: a
    # worker whose heartbeats are not stored counts as dead.
    with site.trouble("no connections", after=20):
        many = site.start("--processes", str(PROCESSES - 4), "--threads", "1")
        many.says("(OperationalError: sorry, too many clients already); trying again")
        eventually(lambda: len(many.children()) == PROCESSES - 4, "all processes have started")
        eventually(lambda: rejected(cluster) >= EARLY_ATTEMPTS, "the pauses are long")
        began, before = time.monotonic(), rejected(cluster)
        eventually(lambda: rejected(cluster) >= before + 300, "many attempts are rejected")
        rate = (rejected(cluster) - before) / (time.monotonic() - began) / PROCESSES
        many.signal(signal.SIGTERM)
        assert many.ends() == 0
    enqueuer.wait(BOUND)
    site.drained()
    verdict = site.verdict()
    report(
        f"{PROCESSES} processes, {CONNECTIONS} connections: of each process {rate:.1f} attempts a "
        f"second are rejected; {verdict.line}"
    )
    verdict.good()
    assert len(few.children()) == 4
    assert "unexpected error" not in site.logs()
    assert rate < MOST_ATTEMPTS


@pytest.mark.skipif(PROGRAM is None, reason="pgbouncer is not on PATH (package: pgbouncer)")
def test_behind_a_pooler_all_processes_work(site: Site, cluster: Cluster, report: Report) -> None:
    with bouncer({**cluster.settings, "PASSWORD": ""}, CONNECTIONS - 10) as clients:
        site.variables["OJS_FAULTS_DATABASE"] = json.dumps({**cluster.settings, **clients})
        tree = site.start("--processes", str(PROCESSES), "--threads", "1").ready(PROCESSES)
        site.enqueue(JOBS, milliseconds=20)
        site.enqueued()
        site.drained()
        verdict = site.verdict()
        report(f"{PROCESSES} processes behind PgBouncer: {verdict.line}")
        verdict.good()
        assert verdict.duplicated == 0
        assert "too many clients" not in tree.log
        site.close()

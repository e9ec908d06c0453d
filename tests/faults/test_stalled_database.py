"""The database stores nothing for longer than three beats, and loses no connection.

Workers that live and could not say so keep their jobs; one that died meanwhile does not.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import psutil
import psycopg
import pytest

from tests import fork_server
from tests.databases import ALIASES
from tests.factories import connected_to
from tests.faults import ledger
from tests.faults.cluster import Cluster, own_cluster
from tests.faults.conftest import Report
from tests.faults.site import Site
from tests.testapp import fault_jobs as handlers
from tests.worker.acceptance.ledger import stored
from tests.worker.processes import ROOT
from tests.worker.waiting import BOUND, eventually

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=ALIASES),
    pytest.mark.postgresql,
    pytest.mark.slow,
]

BEAT = 2
#: Longer than three beats, and shorter than the jobs.
STALL = 4 * BEAT
WORK_MS = 8 * BEAT * 1000
#: Of some jobs, so that leases end during the stall as well.
LEASE = 2 * BEAT
THREADS = 3


@pytest.fixture
def cluster(site: Site) -> Iterator[Cluster]:
    """Return a server of its own that holds the jobs; the ledger stays on the suite's."""
    with own_cluster() as server:
        site.variables["OJS_FAULTS_DATABASE"] = json.dumps(server.settings)
        environment = {
            **site.environment,
            **site.variables,
            "DJANGO_SETTINGS_MODULE": "tests.faults.settings",
        }
        command = [sys.executable, "manage.py", "migrate", "--verbosity=0"]
        fork_server.run(command, cwd=ROOT, env=environment, check=True, timeout=BOUND)
        with connected_to(server.settings):
            try:
                yield server
            finally:
                site.close()


def connect(cluster: Cluster) -> psycopg.Connection[Any]:
    where = cluster.settings
    return psycopg.connect(
        host=where["HOST"], dbname=where["NAME"], user=where["USER"], autocommit=True
    )


def locked(statement: str) -> Callable[[Cluster], AbstractContextManager[None]]:
    @contextmanager
    def stall(cluster: Cluster) -> Iterator[None]:
        with connect(cluster) as link, link.transaction():
            link.execute(statement.encode())
            yield

    return stall


@contextmanager
def without_standby(cluster: Cluster) -> Iterator[None]:
    """Let each commit wait for a standby that is away."""
    with connect(cluster) as link:
        link.execute("ALTER SYSTEM SET synchronous_standby_names = 'away'")
        link.execute("SELECT pg_reload_conf()")
        try:
            yield
        finally:
            link.execute("ALTER SYSTEM RESET synchronous_standby_names")
            link.execute("SELECT pg_reload_conf()")


@contextmanager
def frozen(cluster: Cluster) -> Iterator[None]:
    """Stop all processes of the server, as those of a container that is paused."""
    postmaster = psutil.Process(cluster.pid)
    with ExitStack() as thawed:
        for process in (postmaster, *postmaster.children()):
            process.suspend()
            thawed.callback(process.resume)
        yield


STALLS = {
    "workers locked": locked("LOCK TABLE ojs_worker IN ACCESS EXCLUSIVE MODE"),
    "writes of workers locked": locked("LOCK TABLE ojs_worker IN SHARE MODE"),
    "jobs locked": locked("LOCK TABLE ojs_job IN ACCESS EXCLUSIVE MODE"),
    "writes of jobs locked": locked("LOCK TABLE ojs_job IN SHARE MODE"),
    "commits hang": without_standby,
    "server frozen": frozen,
}


#: In a table that can be read workers are found silent, and their jobs may be taken. Behind the
#: stronger lock of the same table nobody even looks.
STRONGER = ("workers locked", "jobs locked")


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=pytest.mark.storm) if each in STRONGER else each for each in STALLS],
)
def test_promise_3_jobs_of_living_workers_run_once_while_the_database_stalls(
    site: Site, cluster: Cluster, report: Report, name: str
) -> None:
    ojs = {"HEARTBEAT_INTERVAL": BEAT}
    # One without a job, whose heartbeats need no other table.
    site.start("--queues", "nothing", ojs=ojs).ready()
    victim = site.start("--threads", "1", ojs=ojs).ready()
    lost = stored(handlers.effect.enqueue(WORK_MS))
    eventually(lambda: ledger.count("start") == 1, "the job of the one that dies runs")
    # With a free place for what is taken back.
    living = [site.start("--threads", str(THREADS + 1), ojs=ojs).ready() for _ in range(2)]
    leases = [None, LEASE] * THREADS
    jobs = [stored(handlers.effect.options(visibility_timeout=n).enqueue(WORK_MS)) for n in leases]
    eventually(lambda: ledger.count("start") == 1 + len(jobs), "all run")
    began = time.monotonic()
    with STALLS[name](cluster):
        for pid in (victim.pid, *victim.children()):
            site.kill(victim, pid)
        eventually(lambda: time.monotonic() - began > STALL, "three beats are missed")
    ended = time.monotonic()
    site.drained()
    once = [(str(job.pk), 1) for job in jobs]
    starts = [(start.job, start.run) for start in ledger.starts()]
    assert sorted(starts) == sorted([(str(lost.pk), 1), (str(lost.pk), 2), *once])
    again = max(start.at for start in ledger.starts()) - ended
    report(f"{name}: the job of the dead worker runs {again:.1f} s after the stall")
    for tree in living:
        assert "its claim is gone" not in tree.log

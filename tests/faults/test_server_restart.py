"""The database server crashes under load and comes back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest
from django.db import connection

from tests.databases import ALIASES
from tests.faults import ledger
from tests.faults.cluster import Cluster, MariaDBServer, own_cluster, own_mariadb
from tests.faults.conftest import FULL, Report
from tests.faults.site import Site, until

CRASHES = 5 if FULL else 1

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=ALIASES),
    pytest.mark.postgresql,
    pytest.mark.mariadb,
    pytest.mark.slow,
    pytest.mark.timeout(900 + CRASHES * 60),
]


@pytest.fixture
def cluster(site: Site) -> Iterator[Cluster | MariaDBServer]:
    """Return a server of its own that holds the jobs; the ledger stays on the suite's."""
    made: AbstractContextManager[Cluster | MariaDBServer] = (
        own_cluster() if connection.vendor == "postgresql" else own_mariadb()
    )
    with made as server, site.with_jobs_on(server.settings):
        yield server


def crash(cluster: Cluster | MariaDBServer) -> None:
    if isinstance(cluster, MariaDBServer):
        cluster.crash()
    else:
        cluster.stop("immediate")


def pause(site: Site, cluster: Cluster | MariaDBServer) -> float:
    """Return the seconds from the start of the server, its recovery included, to the next claim."""
    connection.close()
    if isinstance(cluster, MariaDBServer):
        started = cluster.started_at
    else:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_postmaster_start_time()")
            started = cursor.fetchone()[0]
    claims = site.jobs.filter(started_at__gt=started).values_list("started_at", flat=True)
    first = claims.order_by("started_at")[0]
    assert first is not None
    return (first - started).total_seconds()


def test_promise_2_jobs_survive_a_crash_of_the_server_under_load(
    site: Site, cluster: Cluster | MariaDBServer, report: Report
) -> None:
    site.start("--processes", "2", "--threads", "4")
    site.start("--processes", "1", "--threads", "4")
    enqueuer = site.enqueue(10**6, milliseconds=8, pause=0.005)
    pauses = []
    for number in range(1, CRASHES + 1):
        assert until(lambda number=number: ledger.count("done") > 400 * number)  # type: ignore[misc]  # mypy has no inference for a default
        # Jobs of workers that counted as dead while no beat was possible run again a little later.
        with site.trouble("crash", after=20):
            crash(cluster)
            cluster.start()
        count = ledger.count("done")
        assert until(lambda count=count: ledger.count("done") > count + 50)  # type: ignore[misc]  # as above
        pauses.append(pause(site, cluster))
    enqueuer.kill()
    site.enqueued()
    connection.close()
    site.drained()
    verdict = site.verdict()
    report(f"{CRASHES} crashes, work goes on after {max(pauses):.1f} s at most: {verdict.line}")
    verdict.good()
    assert site.known("error"), "the enqueuer saw the crash"
    stored = site.stored_with_their_rows()
    assert set(site.known("acknowledged")) <= stored
    assert not stored & set(site.known("rolled-back"))
    site.completed_once()

"""PostgreSQL crashes under load and comes back."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from django.db import connection

from tests.databases import ALIASES
from tests.faults import ledger
from tests.faults.cluster import Cluster, own_cluster
from tests.faults.conftest import FULL, Tell
from tests.faults.site import Site, until
from tests.worker.processes import ROOT

CRASHES = 5 if FULL else 1

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=ALIASES),
    pytest.mark.postgresql,
    pytest.mark.slow,
    pytest.mark.timeout(120 + CRASHES * 60),
]


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
        subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=60)
        # This process as well looks there.
        ours = connection.settings_dict
        kept = dict(ours)
        connection.close()
        ours.update(server.settings)
        try:
            yield server
        finally:
            site.close()
            connection.close()
            ours.update(kept)


def test_promise_2_jobs_survive_a_crash_of_the_server_under_load(
    site: Site, cluster: Cluster, tell: Tell
) -> None:
    site.start("--processes", "2", "--threads", "4")
    site.start("--processes", "1", "--threads", "4")
    enqueuer = site.enqueue(10**6, milliseconds=8, pause=0.005)
    pauses = []
    for number in range(1, CRASHES + 1):
        assert until(lambda number=number: ledger.count("done") > 400 * number, within=40)  # type: ignore[misc]  # mypy has no inference for a default
        # Those that were given up for dead while nobody could beat run again a little later.
        with site.trouble("crash", after=20):
            cluster.stop("immediate")
            cluster.start()
            back = time.monotonic()
        count = ledger.count("done")
        assert until(lambda count=count: ledger.count("done") > count + 50, within=60)  # type: ignore[misc]  # as above
        later = [line.at for line in ledger.lines("start") if line.at > back]
        pauses.append(later[0] - back)
    enqueuer.kill()
    site.enqueued()
    connection.close()
    site.drained()
    verdict = site.verdict()
    tell(
        f"{CRASHES} crashes, work goes on after {max(pauses):.1f} s at most: {verdict.line}"
    )
    verdict.good()
    assert site.known("error"), "the enqueuer saw the crash"
    stored = site.stored_with_their_rows()
    assert set(site.known("acknowledged")) <= stored
    assert not stored & set(site.known("rolled-back"))
    site.completed_once()

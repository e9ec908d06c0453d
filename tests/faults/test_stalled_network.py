"""The network between the workers and the database is slow, silent for a while, or cut."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from django.db import connection

from tests.databases import ALIASES
from tests.faults import ledger
from tests.faults.conftest import Report
from tests.faults.proxy import Proxy, proxy
from tests.faults.replication import Pair, replicated_pair
from tests.faults.site import Site
from tests.worker.waiting import eventually

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=ALIASES),
    pytest.mark.postgresql,
    pytest.mark.storm,
]

BEAT = 1


@pytest.fixture
def server(site: Site) -> Iterator[Pair]:
    """Return a server on a port that holds the jobs; this process and the enqueuer reach it."""
    with replicated_pair() as servers:
        direct = {**servers.settings, "HOST": "127.0.0.1", "PORT": str(servers.primary.port)}
        with site.with_jobs_on(direct):
            yield servers


def test_workers_recover_by_themselves_from_a_network_that_fails(
    site: Site, server: Pair, report: Report
) -> None:
    with proxy(server.primary.port) as network:
        through = json.loads(site.variables["OJS_FAULTS_DATABASE"]) | {"PORT": str(network.port)}
        tree = site.start(
            *("--processes", "2", "--threads", "4"),
            ojs={"HEARTBEAT_INTERVAL": BEAT},
            OJS_FAULTS_DATABASE=json.dumps(through),
        ).ready(2)
        working = tree.children()
        enqueuer = site.enqueue(10**6, milliseconds=8, pause=0.02)

        def goes_on() -> None:
            before = ledger.count("done")
            eventually(lambda: ledger.count("done") > before + 30, "jobs run")

        goes_on()
        with site.trouble("network", after=5 * BEAT):
            network.delay = 0.02
            goes_on()
            network.delay = 0.0
            for end in (network.cut, network.half_close):
                _fails(end, goes_on)
            _stalls(network)
            goes_on()
        enqueuer.kill()
        site.enqueued()
        site.drained()
        assert tree.children() == working
        verdict = site.verdict()
        report(f"delayed, cut, half-closed and stalled: {verdict.line}")
        verdict.good()
        site.completed_once()


def _fails(end: Callable[[], None], goes_on: Callable[[], None]) -> None:
    for _ in range(3):
        end()
        goes_on()


def _stalls(network: Proxy) -> None:
    """Let nothing through until no handler runs, and the workers have missed heartbeats."""
    network.stall()
    try:
        # The server's own clock says how long it has heard nothing.
        silent = "SELECT bool_and(seen_at < clock_timestamp() - interval '5 s') FROM ojs_worker"

        def is_silent() -> bool:
            with connection.cursor() as cursor:
                cursor.execute(silent)
                return bool(cursor.fetchone()[0])

        eventually(is_silent, "the workers have missed their heartbeats")
    finally:
        network.resume()

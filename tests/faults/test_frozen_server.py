"""Connections that are established and carry nothing: a frozen server, a proxy that is stuck."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import closing

import pytest
from django.db import connection

import django_ojs as ojs
from django_ojs.extensions.statistics import rollups
from django_ojs.spec import ids
from django_ojs.worker import health
from tests.databases import ALIASES
from tests.faults import ledger
from tests.faults.proxy import Proxy
from tests.faults.replication import Pair
from tests.faults.site import Site
from tests.faults.test_stalled_network import server as server
from tests.http.api import Api
from tests.worker.waiting import eventually

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=ALIASES),
    pytest.mark.postgresql,
    pytest.mark.storm,
]

BEAT = {"HEARTBEAT_INTERVAL": 1}


def through(site: Site, *proxies: Proxy) -> str:
    """Return the database of a worker that knows these addresses of the server."""
    direct = json.loads(site.variables["OJS_FAULTS_DATABASE"])
    hosts = {
        "HOST": ",".join(["127.0.0.1"] * len(proxies)),
        "PORT": ",".join(str(each.port) for each in proxies),
    }
    return json.dumps(direct | hosts)


def runs_a_job() -> None:
    key = ids.uuid7()
    ojs.enqueue("faults.effect", [0], id=key)
    eventually(lambda: str(key) in ledger.done(), "a job runs")


@pytest.fixture
def proxies(server: Pair) -> Iterator[tuple[Proxy, Proxy]]:
    with closing(Proxy(server.primary.port)) as one, closing(Proxy(server.primary.port)) as other:
        yield one, other


def test_workers_leave_an_address_that_accepts_connections_and_carries_nothing(
    site: Site, proxies: tuple[Proxy, Proxy]
) -> None:
    stuck, other = proxies
    tree = site.start(
        *("--threads", "2", "--poll-interval", "3600"),
        ojs=BEAT,
        OJS_FAULTS_DATABASE=through(site, stuck, other),
    ).ready()
    working = tree.children()
    runs_a_job()
    stuck.stall()
    # The worker is notified over its new connection, too: it does not poll.
    runs_a_job()
    assert tree.children() == working
    tree.signal(signal.SIGTERM)
    assert tree.ends() == 0


def test_a_worker_whose_only_server_is_silent_is_not_ready_until_it_responds(
    site: Site, proxies: tuple[Proxy, Proxy]
) -> None:
    network, _ = proxies
    path = str(site.folder / "health")
    tree = site.start(
        *("--threads", "2", "--health-file", path, "--grace", "1"),
        ojs=BEAT,
        OJS_FAULTS_DATABASE=through(site, network),
    ).ready()
    eventually(lambda: health.problem(path, ready=True) is None, "the worker is ready")
    network.stall()
    eventually(lambda: health.problem(path, ready=True) is not None, "the worker is not ready")
    assert health.problem(path) is None
    tree.says("The database has not replied for ")
    network.resume()
    eventually(lambda: health.problem(path, ready=True) is None, "the worker is ready again")
    runs_a_job()
    network.stall()
    tree.signal(signal.SIGTERM)
    assert tree.ends() == 0


def test_workers_go_on_with_the_new_primary_while_the_frozen_one_acknowledges(
    site: Site, pair: Pair
) -> None:
    pair.replicate(synchronous=True)
    tree = site.start("--processes", "2", "--threads", "2", ojs=BEAT).ready(2)
    working = tree.children()
    runs_a_job()
    connection.close()
    with pair.primary.frozen():
        pair.replica.promote()
        # Enqueued by a client that connects now.
        runs_a_job()
        assert tree.children() == working
        tree.signal(signal.SIGTERM)
        assert tree.ends() == 0


def test_a_worker_waits_for_commits_that_wait_for_a_replica_and_a_site_is_not_ready(
    site: Site, pair: Pair
) -> None:
    pair.replicate(synchronous=True)
    tree = site.start("--threads", "2", ojs=BEAT).ready()
    runs_a_job()
    # After its response, a request writes the figures of its process, if there are any.
    rollups.flush()
    connection.close()
    eventually(lambda: Api().get("ready").status == 200, "the site is ready")
    # Longer than three heartbeats.
    waits = (
        "SELECT max(now() - query_start) > interval '10 s' FROM pg_stat_activity"
        f" WHERE wait_event = 'SyncRep' AND application_name = '{tree.name}'"
    )
    with pair.replica.frozen():
        eventually(lambda: pair.primary.value(waits), "a heartbeat is not stored")
        assert Api().get("ready").status == 503
    runs_a_job()
    assert "has not replied" not in tree.log
    eventually(lambda: Api().get("ready").status == 200, "the site is ready again")

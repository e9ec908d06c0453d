"""Workers, sites and fresh clients on a cluster of Patroni, each by two ways to its leader."""

from __future__ import annotations

import json
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
from django.db import Error, connections, transaction

import django_ojs as ojs
from django_ojs.spec import ids
from django_ojs.worker import health
from tests import fork_server
from tests.factories import connected_to, own_connections
from tests.faults import ledger
from tests.faults.enqueuer import Log
from tests.faults.site import Site, until
from tests.outbox.remote import Remote
from tests.patroni_cluster import Cluster, cluster
from tests.testapp.models import Thing
from tests.worker.processes import ROOT, Tree
from tests.worker.waiting import BOUND

VARIABLE = "OJS_FAULTS_DATABASE"
#: Seconds between two fresh clients, and how many may wait for an answer.
PAUSE, WAITING = 0.25, 40
#: Seconds without a commit that are an outage.
OUTAGE = 4 * PAUSE
#: Seconds between two heartbeats; a connection is dead after three without a reply.
BEAT = 2
DEAD = 3 * BEAT
_HTTP_SECONDS = 10.0


@contextmanager
def migrated_cluster(site: Site, **settings: Any) -> Iterator[Cluster]:
    """Start a cluster with the tables of the project, and connect this thread to it."""
    with cluster(**settings) as made:
        environment = {
            **site.environment,
            VARIABLE: json.dumps(made.by_hosts()),
            "DJANGO_SETTINGS_MODULE": "tests.faults.http_settings",  # With the admin's tables.
        }
        command = [sys.executable, "manage.py", "migrate", "--verbosity=0"]
        fork_server.run(command, cwd=ROOT, env=environment, check=True, timeout=BOUND)
        with connected_to(made.by_hosts()):
            try:
                yield made
            finally:
                site.close()


class Clients(threading.Thread):
    """Fresh clients of an address, one after another: each connects, enqueues a job, and leaves."""

    def __init__(self, queue: str, settings: Mapping[str, Any], log: Path) -> None:
        super().__init__(daemon=True)
        self._queue = queue
        self._settings = settings
        self._log = Log(str(log))
        self._stop_wanted = threading.Event()
        self._threads: list[threading.Thread] = []
        self.commits: list[tuple[float, float]] = []
        self.error: BaseException | None = None

    @property
    def waiting(self) -> int:
        """How many wait for an answer."""
        return sum(thread.is_alive() for thread in self._threads)

    def run(self) -> None:
        while not self._stop_wanted.wait(PAUSE):
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            # One whose server is frozen does not keep the next one from trying.
            if len(self._threads) < WAITING:
                thread = threading.Thread(target=self._enqueue, daemon=True)
                thread.start()
                self._threads.append(thread)

    def _enqueue(self) -> None:
        key = ids.uuid7()
        self._log.report("attempted", key)
        began = time.monotonic()
        try:
            with own_connections(), _connected(self._settings), transaction.atomic():
                Thing.objects.create(name=f"order {key}")
                ojs.enqueue("faults.effect", [2], queue=self._queue, id=key)
        except Error as error:
            self._log.error(error)
        except BaseException as error:
            self.error = error
        else:
            self._log.report("acknowledged", key)
            self.commits.append((began, time.monotonic()))

    def close(self) -> None:
        self._stop_wanted.set()
        self.join(BOUND)
        for thread in self._threads:
            thread.join(BOUND)
        error, self.error = self.error, None
        assert error is None, error


@contextmanager
def _connected(settings: Mapping[str, Any]) -> Iterator[None]:
    """Let this thread's connection be one with these settings."""
    link = connections.create_connection("default")
    link.settings_dict = {**link.settings_dict, **settings, "CONN_MAX_AGE": 0}
    connections["default"] = link
    try:
        yield
    finally:
        link.close()


class Probe(threading.Thread):
    """Asks again and again whether a worker and a site are ready, and keeps what they say."""

    def __init__(self, health_file: Path, url: str) -> None:
        super().__init__(daemon=True)
        self._health_file = str(health_file)
        self._url = f"{url}/ojs/v1/ready"
        self._stop_wanted = threading.Event()
        #: When it was asked, whether it is ready, and how long the answer took.
        self.worker: list[tuple[float, bool, float]] = []
        self.site: list[tuple[float, bool, float]] = []

    def run(self) -> None:
        with httpx.Client(trust_env=False, timeout=_HTTP_SECONDS, verify=False) as client:
            while not self._stop_wanted.wait(PAUSE):
                began = time.monotonic()
                self.worker.append((began, not health.problem(self._health_file, ready=True), 0))
                try:
                    is_ready = client.get(self._url).status_code == 200
                except httpx.HTTPError:
                    is_ready = False
                self.site.append((began, is_ready, time.monotonic() - began))

    def close(self) -> None:
        self._stop_wanted.set()
        self.join(BOUND)


class Way:
    """One way to the leader: its worker, its site, its enqueuer and its fresh clients."""

    def __init__(self, name: str, settings: Mapping[str, Any], site: Site, *, busy: bool) -> None:
        self.name = name
        variables = {VARIABLE: json.dumps(settings)}
        health_file = site.folder / f"health-{name}"
        self.tree: Tree = site.start(
            *("--queues", name, "--processes", "2", "--threads", "2"),
            *("--health-file", str(health_file)),
            ojs={"HEARTBEAT_INTERVAL": BEAT},
            **variables,
        )
        self._server = Remote(
            {**site.environment, **variables},
            site.folder / f"site-{name}.log",
            "tests.faults.http_settings",
        )
        self.clients = Clients(name, settings, site.folder / f"enqueuer-{name}.log")
        self._server.start()
        self.probe = Probe(health_file, self._server.url)
        self.processes = {each.pid for each in self.tree.ready(2).workers()}
        if busy:
            site.variables |= variables
            site.enqueue(10**6, queue=name, milliseconds=4, pause=0.05)
        self.clients.start()
        self.probe.start()

    def has_resumed(self, moment: float) -> bool:
        """Whether a fresh client that came after a moment has committed, and a job ran since."""
        ends = [end for began, end in list(self.clients.commits) if began > moment]
        return bool(ends) and bool(ledger.starts_of(self.processes, min(ends)))

    def outage(self, began: float, ended: float) -> tuple[float, float]:
        """Return the longest time without a commit of a fresh client: its begin and its end."""
        ends = [began, *sorted(e for _, e in list(self.clients.commits) if began < e < ended)]
        return max(pairwise([*ends, ended]), key=lambda gap: gap[1] - gap[0])

    def longest_wait(self, began: float, ended: float, dead: float) -> float:
        """Return how long after a commit of a fresh client the workers started no job, at most.

        `dead`: when a connection to a machine that is silent counts as dead; until then a worker
        waits for its replies. The time in which fresh clients committed nothing does not count.
        """
        ends = sorted(end for _, end in list(self.clients.commits) if began < end < ended)
        gaps = [(down, up) for down, up in pairwise(ends) if up - down > OUTAGE]
        starts = [*ledger.starts_of(self.processes, began), time.monotonic()]
        longest = 0.0
        for end in ends:
            start = starts[min(bisect_right(starts, end), len(starts) - 1)]
            since = max(end, dead)
            lost = sum(max(0.0, min(up, start) - max(down, since)) for down, up in gaps)
            longest = max(longest, start - since - lost)
        return longest

    def close(self) -> None:
        self.clients.close()
        self.probe.close()
        self._server.stop()


def two_ways(site: Site, made: Cluster, stack: ExitStack, *, busy: bool) -> list[Way]:
    """Start all for clients that know three hosts, and for clients behind HAProxy."""
    found = []
    for name, settings in {"hosts": made.by_hosts(), "proxy": made.by_proxy()}.items():
        found.append(Way(name, settings, site, busy=busy))
        stack.callback(found[-1].close)
    return found


def all_resume(ways: list[Way], within: float = BOUND) -> bool:
    """Wait until a fresh client of each way commits, and its workers go on. Return whether."""
    moment = time.monotonic()
    return until(lambda: all(way.has_resumed(moment) for way in ways), within, pause=0.1)

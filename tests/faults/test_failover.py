"""The machine of the database dies, and its replica takes over: all goes on without a restart."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import UUID

import httpx
import pytest
from django.db import Error, connection, connections
from django.test import override_settings

import django_ojs as ojs
from django_ojs.extensions.outbox.models import OutboxEntry
from django_ojs.models import Worker
from django_ojs.spec import ids
from tests.databases import ALIASES
from tests.factories import own_connections
from tests.faults import ledger
from tests.faults.conftest import Report
from tests.faults.enqueuer import Log
from tests.faults.replication import Pair
from tests.faults.site import Site
from tests.outbox.conftest import remote as remote
from tests.outbox.remote import Remote
from tests.worker.waiting import BOUND, eventually

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=ALIASES),
    pytest.mark.postgresql,
    pytest.mark.storm,
]

#: Of the worker that finds its jobs by notifications only.
NOTIFIED = "notified"
#: How many jobs run, and how many requests are responded to, before the machine dies.
BEFORE = 150


class Producer(threading.Thread):
    """Enqueues one job after another, and writes down which of them are acknowledged, and when.

    `push` returns whether the job is stored; False and an error of the database leave it open.
    """

    def __init__(self, log: Path, push: Callable[[UUID], bool]) -> None:
        super().__init__(daemon=True)
        self._log = Log(str(log))
        self._push = push
        self._stop_wanted = threading.Event()
        self.acknowledged: dict[str, float] = {}
        self.failures = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with own_connections():
                while not self._stop_wanted.wait(0.02):
                    self._one(ids.uuid7())
        except BaseException as error:
            self.error = error

    def _one(self, key: UUID) -> None:
        self._log.report("attempted", key)
        try:
            is_stored = self._push(key)
        except Error:
            connections.close_all()
            is_stored = False
        if is_stored:
            self._log.report("acknowledged", key)
            self.acknowledged[str(key)] = time.monotonic()
        else:
            self.failures += 1

    def since(self, moment: float) -> float | None:
        """Return how long after a moment the next job was acknowledged."""
        return min((at - moment for at in self.acknowledged.values() if at > moment), default=None)

    def close(self) -> None:
        self._stop_wanted.set()
        self.join(BOUND)
        assert not self.is_alive()
        assert self.error is None, self.error


@contextmanager
def producing(log: Path, push: Callable[[UUID], bool]) -> Iterator[Producer]:
    producer = Producer(log, push)
    producer.start()
    try:
        yield producer
    finally:
        producer.close()


@contextmanager
def http_pushes(site: Site) -> Iterator[Callable[[UUID], bool]]:
    """Serve the API by gunicorn, and yield a function that pushes a job through it."""
    environment = {**site.environment, **site.variables}
    server = Remote(environment, site.folder / "site.log", "tests.faults.http_settings")
    server.start()
    statuses: set[int] = set()
    try:
        with httpx.Client(trust_env=False, timeout=BOUND) as client:

            def push(key: UUID) -> bool:
                body = {"id": str(key), "type": "faults.effect", "args": [2]}
                status = client.post(f"{server.url}/ojs/v1/jobs", json=body).status_code
                statuses.add(status)
                return status == 201

            yield push
    finally:
        server.stop()
    assert statuses == {201, 503}, (site.folder / "site.log").read_text()


def outbox_push(key: UUID) -> bool:
    ojs.enqueue("test.job", [], queue="remote-a", id=key)
    return True


def resumed(pids: set[int], moment: float) -> dict[int, float]:
    """Return how long after a moment each of these processes started a job that it claimed then."""
    found: dict[int, float] = {}
    for line in ledger.lines("start"):
        # The jobs that were claimed before had the time of an outage to start.
        if line.pid in pids and line.at > moment:
            found.setdefault(line.pid, line.at - moment)
    return found


def test_promise_2_with_synchronous_replication_no_acknowledged_job_is_lost(
    site: Site, pair: Pair, remote: Remote, report: Report
) -> None:
    pair.replicate(synchronous=True)
    outbox = {"OUTBOX": {"remote": {"url": remote.url, "queues": ["remote-*"]}}}
    trees = [
        site.start("--processes", "2", "--threads", "4", ojs=outbox).ready(2),
        site.start("--threads", "4").ready(),
    ]
    by_notification = ("--threads", "1", "--queues", NOTIFIED, "--poll-interval", "3600")
    listening = site.start(*by_notification).ready()
    working = {pid for tree in trees for pid in tree.children()}
    everyone = working | set(listening.children())
    enqueuer = site.enqueue(10**6, milliseconds=8, pause=0.005)
    with (
        ExitStack() as stack,
        override_settings(OJS=outbox),
        http_pushes(site) as push,
        producing(site.folder / "enqueuer-http.log", push) as http,
        producing(site.folder / "outbox.log", outbox_push) as relayed,
    ):
        eventually(
            lambda: (
                ledger.count("done") > BEFORE
                and len(http.acknowledged) > BEFORE / 3
                and remote.jobs.count() > BEFORE / 3
            ),
            "all is under load",
        )
        with site.trouble("failover", after=5):
            stack.enter_context(pair.silent_primary())
            eventually(lambda: http.failures and relayed.failures, "clients notice it")
            promotion = time.monotonic()
            pair.replica.promote()
            connection.close()
        sent = remote.jobs.count()
        eventually(lambda: remote.jobs.count() > sent, "the relay goes on")
        relay_after = time.monotonic() - promotion
        eventually(lambda: set(resumed(working, promotion)) == working, "all processes go on")
        eventually(lambda: http.since(promotion) is not None, "the API goes on")
        eventually(lambda: relayed.since(promotion) is not None, "the producers go on")
        eventually(lambda: _sessions() == everyone, "all listen again")
        listening_after = time.monotonic() - promotion
        key = ids.uuid7()
        Log(str(site.folder / "enqueuer-test.log")).report("attempted", key)
        ojs.enqueue("faults.effect", [0], queue=NOTIFIED, id=key)
        eventually(lambda: str(key) in ledger.done(), "a notification wakes a worker")
    enqueuer.kill()
    site.enqueued()
    site.drained()
    unsent = OutboxEntry.objects.exclude(state="sent")
    eventually(lambda: not unsent.exists(), "all is sent")
    after = max(resumed(working, promotion).values())
    verdict = site.verdict()
    report(
        f"after the promotion go on: workers {after:.1f} s, their listeners {listening_after:.1f}"
        f" s, API {http.since(promotion):.1f} s, relay {relay_after:.1f} s; {verdict.line}"
    )
    verdict.good()
    assert {pid for tree in (*trees, listening) for pid in tree.children()} == everyone
    stored = {str(key) for key in site.jobs.values_list("pk", flat=True)}
    assert set(site.known("acknowledged")) <= stored
    arrived = {str(key) for key in remote.jobs.values_list("pk", flat=True)}
    assert set(relayed.acknowledged) <= arrived
    site.completed_once()


def test_asynchronous_replication_loses_only_what_the_replica_had_not_received(
    site: Site, pair: Pair, report: Report
) -> None:
    pair.replicate(synchronous=False)
    tree = site.start("--processes", "2", "--threads", "4").ready(2)
    working = set(tree.children())
    enqueuer = site.enqueue(10**6, milliseconds=8, pause=0.005)
    eventually(lambda: ledger.count("done") > BEFORE, "it is under load")
    safe = set(site.known("acknowledged"))
    pair.stop_replication()
    stopped = time.monotonic()
    late = len(site.known("acknowledged"))
    eventually(lambda: len(site.known("acknowledged")) > late + BEFORE, "more is acknowledged")
    with site.trouble("failover", after=5):
        pair.primary.kill()
        eventually(lambda: site.known("error"), "the enqueuer notices it")
        promotion = time.monotonic()
        pair.replica.promote()
        connection.close()
    eventually(lambda: set(resumed(working, promotion)) == working, "all processes go on")
    enqueuer.kill()
    site.enqueued()
    site.drained()
    verdict = site.verdict()
    stored = {str(key) for key in site.jobs.values_list("pk", flat=True)}
    gone = set(site.known("acknowledged")) - stored
    report(
        f"of the jobs that were acknowledged while the replica received nothing, {len(gone)} are "
        f"gone, {len(verdict.lost)} of them before they ran; {len(verdict.unexplained)} ran a "
        f"second time, because their completion is gone; {verdict.line}"
    )
    assert gone
    assert not gone & safe
    assert not verdict.unexpected
    # The claim is gone with the completion, so the second run has the number of the first.
    assert all(first.at > stopped - 1 for first, _ in verdict.unexplained)
    site.completed_once()


def _sessions() -> set[int]:
    """Return the processes whose sessions on this server are known."""
    found = Worker.objects.filter(session_started_at__isnull=False).extra(
        where=[
            "EXISTS (SELECT FROM pg_stat_activity AS a WHERE a.pid = session_pid"
            " AND a.backend_start = session_started_at)"
        ]
    )
    return set(found.values_list("pid", flat=True))

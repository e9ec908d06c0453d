"""Promise 6: nothing needs session state. All goes through PgBouncer in transaction mode."""

from __future__ import annotations

import json
import selectors
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import connection

import django_ojs as ojs
from django_ojs.extensions.events.operations import feed
from django_ojs.models import Worker
from django_ojs.storage import database
from django_ojs.storage.dialects import kept_plans
from django_ojs.worker.listener import Listener
from tests.databases import ALIASES
from tests.factories import connected_to
from tests.faults import ledger
from tests.faults.bouncer import PROGRAM, bouncer
from tests.faults.conftest import Report
from tests.faults.site import Site
from tests.testapp import fault_jobs as handlers
from tests.worker.acceptance.ledger import stored
from tests.worker.waiting import eventually

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=ALIASES),
    pytest.mark.postgresql,
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="pgbouncer is not on PATH (package: pgbouncer)"),
]

#: Fewer than there are clients: they share.
POOL = 5


@pytest.fixture(autouse=True)
def pooled(site: Site) -> Iterator[None]:
    """Let the workers, the enqueuers and this process reach the jobs through the pooler only."""
    with bouncer(connection.settings_dict, POOL) as clients, connected_to(clients):
        site.variables["OJS_FAULTS_DATABASE"] = json.dumps(clients)
        try:
            yield
        finally:
            site.close()


def test_promise_6_workers_and_enqueuers_work_through_a_transaction_pooler(
    site: Site, report: Report
) -> None:
    site.start("--processes", "2", "--threads", "8").ready(2)
    for _ in range(2):
        site.enqueue(300, milliseconds=2)
    site.enqueued()
    site.drained()
    verdict = site.verdict()
    report(f"through PgBouncer, {POOL} connections: {verdict.line}")
    verdict.good()
    assert verdict.duplicated == 0
    assert site.known("error") == []
    assert site.stored_with_their_rows() == set(site.known("acknowledged"))
    site.completed_once()
    # No worker took a pooled session for its own: its end would mean nothing.
    assert set(Worker.objects.values_list("session_pid", flat=True)) == {None}


def test_every_operation_of_the_client_works_through_a_transaction_pooler(site: Site) -> None:
    site.start("--threads", "2").ready()
    scheduled = stored(
        handlers.effect.options(scheduled_at=timedelta(seconds=0.5), priority=ojs.HIGH).enqueue()
    )
    far = stored(handlers.effect.options(scheduled_at=timedelta(hours=1)).enqueue())
    pending = stored(handlers.effect.options(pending=True).enqueue())
    assert ojs.cancel(far.pk) is not None
    ojs.activate(pending.pk)
    running = stored(handlers.effect.enqueue(500))
    site.drained()
    assert ledger.done() == {str(job.pk) for job in (scheduled, pending, running)}
    assert ojs.get_job(far.pk).state == "cancelled"


def test_behind_a_pooler_a_dead_worker_is_found_by_its_silence(site: Site) -> None:
    victim = site.start("--threads", "1", ojs={"HEARTBEAT_INTERVAL": 1}).ready()
    other = site.start("--threads", "1", "--queues", "other", ojs={"HEARTBEAT_INTERVAL": 1})
    other.ready()
    job = stored(handlers.effect.enqueue(2_000))
    eventually(lambda: ledger.count("start") == 1, "it runs")
    site.kill_tree(victim)
    site.start("--threads", "1", ojs={"HEARTBEAT_INTERVAL": 1}).ready()
    site.drained()
    job.refresh_from_db()
    assert (job.state, job.attempt, job.result) == ("completed", 2, "run 2")


class Owner:
    """As the heartbeat: it takes the session of a thread for the worker's, if it is its own."""

    wants_session = False

    def attach_session(self) -> bool:
        return database.dialect().session(database.connection()) is not None

    def detach_session(self) -> None:
        """No session was attached."""


def test_a_process_finds_out_that_its_session_is_shared(site: Site) -> None:
    woken: list[str] = []
    listener = Listener(
        ["default"],
        wake=lambda *_: woken.append("woken"),
        session=Owner(),
        connected=lambda: woken.append("connected"),
    )
    thread = listener._thread
    assert thread is not None
    eventually(lambda: not thread.is_alive(), "it leaves the worker to its polls")
    assert not listener.listening
    assert not woken
    with selectors.DefaultSelector() as selector:
        assert not feed._listen(selector)
    assert kept_plans.rows(database.connection(), "SELECT 1", {}) is None

"""The network keeps a claim back, and the server gets it when the worker has long been dead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from django_ojs.models import Worker
from tests.databases import ALIASES, DATABASES
from tests.faults.proxy import proxy
from tests.faults.site import Site
from tests.testapp import fault_jobs as handlers
from tests.worker.acceptance.ledger import stored
from tests.worker.waiting import eventually

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=ALIASES),
    pytest.mark.postgresql,
    pytest.mark.slow,
]


def test_a_claim_that_arrives_after_the_rescue_takes_no_job(site: Site) -> None:
    server = DATABASES["default"]
    socket = Path(server["HOST"]) / f".s.PGSQL.{server.get('PORT') or 5432}"
    with proxy(str(socket)) as network:
        through = {"HOST": "127.0.0.1", "PORT": str(network.port)}
        # Its claims and nothing else: a heartbeat that is kept back may hold the lock of the row.
        network.stall(answers=False, at=_is_claim)
        dead = site.start(
            ojs={"HEARTBEAT_INTERVAL": 1}, OJS_FAULTS_DATABASE=json.dumps(through)
        ).ready()
        first = Worker.objects.get()
        eventually(lambda: network.held, "the network keeps a claim back")
        site.kill_tree(dead)
        # One that rescues, and takes no jobs of this queue.
        site.start("--queues", "other").ready()
        eventually(lambda: not Worker.objects.filter(pk=first.pk).exists(), "it counts as dead")
        job = stored(handlers.effect.enqueue(0))
        network.resume()
        # The server has read what its sessions were sent, and ended them.
        dead.forgotten()
    job.refresh_from_db()
    assert (job.state, job.worker_id) == ("available", None)
    site.start().ready()
    site.drained()
    job.refresh_from_db()
    assert (job.state, job.run, job.attempt) == ("completed", 1, 1)


def _is_claim(piece: bytes) -> bool:
    """Whether it executes a claim: with a plan that its session keeps, or without one."""
    is_plain = b"UPDATE ojs_job" in piece and b"PREPARE ojs_" not in piece
    return b"EXECUTE ojs_" in piece or is_plain

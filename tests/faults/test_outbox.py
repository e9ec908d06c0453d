"""The outbox when relays die, and when the server they send to is full: each job arrives once."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from typing import Any

import httpx
import pytest
from django.db import transaction
from django.test import override_settings

import django_ojs as ojs
from django_ojs.extensions.outbox.models import OutboxEntry
from django_ojs.operations import queues
from tests import fork_server
from tests.factories import own_connections
from tests.faults.conftest import FULL, Report
from tests.operations.routers import PATH
from tests.outbox.conftest import remote as remote
from tests.outbox.killed_relay import JOBS
from tests.outbox.remote import Remote
from tests.worker.acceptance.conftest import Start
from tests.worker.acceptance.conftest import start as start
from tests.worker.processes import ROOT
from tests.worker.waiting import BOUND, eventually

KILLS = 200 if FULL else 5
FULL_FOR = 60.0 if FULL else 4.0
PRODUCERS = 3
QUEUE = "remote-a"
DEPTH = 50

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
]


@pytest.mark.requirement("FA-003")
def test_each_job_arrives_once_though_relays_are_killed(
    remote: Remote, process_environment: dict[str, str]
) -> None:
    destination = {"url": remote.url, "queues": ["remote-*"], "timeout": 20}
    ended = fork_server.run(
        [sys.executable, "-m", "tests.outbox.killed_relay", str(KILLS)],
        cwd=ROOT,
        env={
            **process_environment,
            "DJANGO_SETTINGS_MODULE": "tests.worker.settings",
            "OJS_TEST_OJS": json.dumps({"OUTBOX": {"remote": destination}}),
        },
        capture_output=True,
        check=False,
        timeout=580,
    )
    assert ended.returncode == 0, ended.stderr.decode()
    assert ended.stdout.split()[-1] == str(KILLS).encode()
    assert [job.args[0] for job in remote.jobs] == list(range(JOBS * KILLS))
    assert not OutboxEntry.objects.exclude(state="sent").exists()


@pytest.mark.storm  # Among the relay's own tests is one without producers.
@pytest.mark.requirement("FA-003")
def test_a_remote_queue_that_stays_full_loses_nothing_and_producers_notice_nothing(
    remote: Remote, start: Start, report: Report
) -> None:
    """For a minute the remote queue has no worker; a relay in a separate process still sends."""
    _bound(DEPTH)
    settings = {"OUTBOX": {"remote": {"url": remote.url, "queues": ["remote-*"]}}}
    tree = start(ojs=settings, program=("manage.py", "ojs_relay"))
    stop = threading.Event()
    errors: list[BaseException] = []
    slowest = [0.0] * PRODUCERS
    made: list[list[str]] = [[] for _ in range(PRODUCERS)]

    def enqueue(producer: int) -> None:
        """As a site would: a transaction each, alone or with others, and some rolled back."""
        keys = made[producer]
        number = 1 + len(keys) % 3
        rolled_back = len(keys) % 7 == 6
        wanted = [
            ojs.request("test.job", [producer, len(keys) + index], queue=QUEUE)
            for index in range(number)
        ]
        began = time.monotonic()
        with transaction.atomic():
            jobs = ojs.enqueue_batch(wanted)
            transaction.set_rollback(rolled_back)
        slowest[producer] = max(slowest[producer], time.monotonic() - began)
        if rolled_back:
            keys.append("")
        else:
            keys += [str(job.id) for job in jobs if job is not None]

    def produce(producer: int) -> None:
        with own_connections():
            try:
                while not stop.wait(0.1):
                    enqueue(producer)
            except BaseException as error:
                errors.append(error)

    with override_settings(OJS=settings):
        threads = [threading.Thread(target=produce, args=[i]) for i in range(PRODUCERS)]
        for thread in threads:
            thread.start()
        try:
            is_full = OutboxEntry.objects.filter(error_code="QUEUE_FULL")
            eventually(lambda: is_full.exists() or errors, f"it is full; it said:\n{tree.log}")
            end = time.monotonic() + FULL_FOR
            while time.monotonic() < end and not errors:
                assert remote.jobs.count() <= DEPTH
                time.sleep(0.2)
        finally:
            stop.set()
            for thread in threads:
                thread.join(BOUND)
    assert not errors, errors[0]
    assert not any(thread.is_alive() for thread in threads)
    assert tree.process.poll() is None, tree.log
    wanted = sorted(key for keys in made for key in keys if key)
    left = OutboxEntry.objects.exclude(state="sent")
    waited = left.count()
    assert waited > 0
    assert remote.jobs.count() + waited == len(wanted)

    began = time.monotonic()
    _work(remote)
    eventually(lambda: left.count() < waited, f"there is room again; it said:\n{tree.log}")
    _bound(0)
    eventually(lambda: not left.exists(), f"all arrive; it said:\n{tree.log}")
    report(
        f"full for {FULL_FOR:.0f} s: {len(wanted)} jobs of {PRODUCERS} producers, the slowest "
        f"enqueue {max(slowest) * 1000:.0f} ms; {waited} waited, and came in "
        f"{time.monotonic() - began:.0f} s"
    )
    tree.signal(signal.SIGTERM)
    assert tree.ends() == 0
    # Each of them once, and those of a producer in their order.
    found = [(str(job.pk), job.args) for job in remote.jobs]
    assert sorted(key for key, _ in found) == wanted
    for producer, keys in enumerate(made):
        assert [key for key, args in found if args[0] == producer] == [key for key in keys if key]


def _bound(depth: int) -> None:
    with override_settings(DATABASE_ROUTERS=[PATH]):
        queues.configure(QUEUE, {"backpressure": {"max_depth": depth}})


def _work(remote: Remote) -> None:
    """Work what the remote site has, as its own worker would."""
    api = f"{remote.url}/ojs/v1/workers"
    wanted: dict[str, Any] = {"queues": [QUEUE], "count": 100, "worker_id": "w"}
    # Plain HTTP: a client that checks no certificates does not load them.
    with httpx.Client(trust_env=False, verify=False, timeout=BOUND) as client:
        for job in client.post(f"{api}/fetch", json=wanted).json()["jobs"]:
            client.post(f"{api}/ack", json={"job_id": job["id"]}).raise_for_status()

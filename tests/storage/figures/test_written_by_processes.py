"""Figures are written by the processes that count: within ten seconds, and at their end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from django.db.models import Sum

from django_ojs.extensions.events.models import Event
from django_ojs.extensions.statistics.models import Rollup
from django_ojs.operations import queues
from tests.factories import jobs, push
from tests.outbox.conftest import remote as remote
from tests.outbox.remote import Remote
from tests.shells import Shell
from tests.worker.processes import Tree
from tests.worker.waiting import BOUND, eventually

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


def counted(what: str, queue: str = "shell", using: str = "default") -> int:
    rows = Rollup.objects.using(using).filter(queue=queue)
    return int(rows.aggregate(sum=Sum(what))["sum"] or 0)


@pytest.mark.smoke
def test_a_shell_writes_at_its_end(process_environment: dict[str, str]) -> None:
    Shell(process_environment, "enqueue(50)").ends()
    assert counted("enqueued") == 50


@pytest.mark.smoke
def test_a_killed_process_loses_what_it_has_not_written_and_no_job(
    process_environment: dict[str, str],
) -> None:
    script = """
import os
from django_ojs.extensions.statistics import rollups
enqueue(3)
rollups.flush()
rollups.flush = lambda: 0  # It is killed before the next one.
enqueue(2)
os.kill(os.getpid(), 9)
"""
    shell = Shell(process_environment, script)
    shell.process.communicate(timeout=BOUND)
    assert shell.process.returncode == -9
    assert counted("enqueued") == 3
    assert jobs().filter(queue="shell").count() == queues.get("shell").depth == 5


REJECT = """
from django_ojs.operations import queues
queues.configure("shell", {"backpressure": {"max_depth": 1}})
enqueue()
for _ in range(3):
    try:
        enqueue()
    except ojs.errors.QueueFull:
        pass
"""


@pytest.mark.smoke
def test_an_idle_process_writes_while_it_lives(process_environment: dict[str, str]) -> None:
    shell = Shell(process_environment, REJECT + "input()")
    eventually(lambda: shell.lives and counted("rejected") == 3, "the rejections are written")
    eventually(lambda: counted("enqueued") == 1, "the enqueued job is written")
    assert shell.lives
    shell.process.communicate("\n", timeout=BOUND)


def test_events_of_rejections_are_written_at_the_end(process_environment: dict[str, str]) -> None:
    Shell(process_environment, REJECT).ends()
    rejected = Event.objects.filter(type="backpressure.rejected")
    assert sum(event.data["count"] for event in rejected) == 3
    assert counted("rejected") == 3


@pytest.mark.parametrize(
    "child",
    [
        "os._exit(0) if os.fork() else (enqueue(4), sys.exit())",
        # The parent ends last, and writes its own figures once.
        "(os.wait(), sys.exit()) if os.fork() else (enqueue(4), sys.exit())",
    ],
    ids=["orphan", "child"],
)
def test_a_forked_child_writes_its_own_figures(
    process_environment: dict[str, str], child: str
) -> None:
    script = f"""
import os, sys
from django.db import connections
enqueue(2)
connections.close_all()
{child}
"""
    Shell(process_environment, script).ends()
    parent = 0 if "os._exit" in child else 2
    eventually(lambda: counted("enqueued") >= 4 + parent, "parent and child have written")
    assert counted("enqueued") == 4 + parent


def test_a_process_of_multiprocessing_writes_at_its_end(
    process_environment: dict[str, str],
) -> None:
    script = """
import multiprocessing
from django.db import connections
enqueue(2)
connections.close_all()
child = multiprocessing.get_context("fork").Process(target=enqueue, args=(4,))
child.start()
child.join()
"""
    Shell(process_environment, script).ends()
    assert counted("enqueued") == 6


def test_a_process_whose_database_is_gone_ends(process_environment: dict[str, str]) -> None:
    script = """
from django.db import connection, connections
enqueue()
connections.close_all()
connection.settings_dict.update(HOST="/nowhere", NAME="/nowhere/at/all")
"""
    errors = Shell(process_environment, script).ends()
    assert "figures of the last seconds were not written" in errors
    assert "Traceback" not in errors
    assert counted("enqueued") == 0


def test_a_process_that_ends_in_an_open_transaction_ends(
    process_environment: dict[str, str],
) -> None:
    """On SQLite its thread waits for the lock that the main thread holds."""
    script = """
from django.db import transaction
enqueue(3)
transaction.atomic().__enter__()
enqueue(1)
"""
    Shell(process_environment, script).ends()
    assert counted("enqueued") in (0, 3)


@pytest.mark.postgresql
def test_an_open_transaction_does_not_delay_what_was_committed(
    process_environment: dict[str, str],
) -> None:
    script = """
from django.db import transaction
enqueue(3)
with transaction.atomic():
    enqueue(1)
    input()
    transaction.set_rollback(True)
"""
    shell = Shell(process_environment, script)
    eventually(lambda: shell.lives and counted("enqueued") == 3, "the figures are written")
    assert shell.lives
    shell.process.communicate("\n", timeout=BOUND)
    assert counted("enqueued") == 3


def test_gunicorn_writes_rejections_while_it_is_idle_and_at_its_end(
    remote: Remote,
) -> None:
    job = {"type": "test.job", "args": [], "options": {"queue": "web"}}
    # Plain HTTP: a client that checks no certificates does not load them.
    plain: Any = {"trust_env": False, "verify": False, "timeout": BOUND}
    with httpx.Client(base_url=f"{remote.url}/ojs/v1", **plain) as client:
        client.put("/admin/queues/web/config", json={"backpressure": {"max_depth": 1}})
        statuses = [client.post("/jobs", json=job).status_code for _ in range(68)]
    assert statuses == [201] + [429] * 67

    def is_counted() -> bool:
        return counted("rejected", "web", "other") == 67

    eventually(is_counted, "the rejections are written, without another request")
    assert counted("enqueued", "web", "other") == 1
    metrics = httpx.get(f"{remote.url}/ojs/metrics", **plain).text
    assert 'ojs_backpressure_rejected_total{queue="web"} 67.0' in metrics
    last = httpx.post(f"{remote.url}/ojs/v1/jobs", json=job, **plain)
    assert last.status_code == 429
    remote.stop()
    assert counted("rejected", "web", "other") == 68


@pytest.mark.parametrize("processes", [1, 2])
def test_a_worker_writes_its_last_completions_at_its_end(
    process_environment: dict[str, str], tmp_path: Path, processes: int
) -> None:
    for _ in range(7):
        push(type="worker.quick", queue="worked", args=[1])
    worker = Tree(
        process_environment,
        tmp_path / "worker.log",
        *("--queues", "worked", "--once", "--processes", str(processes)),
    )
    try:
        assert worker.ends() == 0
        assert counted("completed", "worked") == 7
    finally:
        worker.kill()

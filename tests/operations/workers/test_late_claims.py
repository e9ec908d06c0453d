"""A claim that the database executes when its worker counts as dead takes no job.

Nobody would take it back: the rescue has been.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection, transaction

from django_ojs.models import Worker
from django_ojs.operations import fetch, queues
from django_ojs.operations.workers import removal, rescue
from django_ojs.storage.claims import Claimed
from tests.factories import WORKER, jobs, own_connections, push, read, worker
from tests.worker.waiting import BOUND, eventually

QUEUE = "late"

#: What makes a claim go another way: limits of the queue, of a key of the job, and tenants' turns.
WAYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "limits": ({"concurrency": 5}, {}),
    "limit key": ({}, {"rate_limit": {"key": "acme", "concurrency": 5}}),
    "turns": ({"tenant_fairness": {"enabled": True}}, {}),
}


def claim() -> list[Claimed]:
    return fetch.fetch([QUEUE], worker_id=WORKER, due=False, registered=True)


@pytest.mark.django_db
@pytest.mark.parametrize("way", WAYS)
def test_a_worker_without_a_row_gets_no_job(way: str) -> None:
    config, options = WAYS[way]
    queues.configure(QUEUE, config)
    job = push(queue=QUEUE, **options)
    assert claim() == []
    assert read(job.pk).state == "available"
    worker()
    assert [found.id for found in claim()] == [job.pk]


@pytest.mark.django_db
def test_a_worker_over_http_gets_jobs_before_it_has_a_row() -> None:
    # ojs-http-binding requires no registration; the FETCH makes it known.
    push(queue=QUEUE)
    assert len(fetch.fetch_remotely([QUEUE], worker_id=WORKER)) == 1


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_claim_that_finds_no_job_writes_nothing() -> None:
    worker()
    with transaction.atomic(), connection.cursor() as cursor:
        assert claim() == []
        cursor.execute("SELECT pg_current_xact_id_if_assigned() IS NULL")
        assert cursor.fetchone() == (True,)


@pytest.fixture
def elsewhere() -> Iterator[Callable[[Callable[[], Any]], Future[Any]]]:
    """Return what calls a function in a thread with connections of its own."""

    def call(function: Callable[[], Any]) -> Any:
        with own_connections():
            return function()

    with ThreadPoolExecutor(1) as pool:
        yield lambda function: pool.submit(call, function)


# SQLite has one write lock: nothing happens meanwhile.
@pytest.mark.postgresql
@pytest.mark.mariadb
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("way", WAYS)
def test_a_rescue_leaves_a_worker_whose_claim_is_not_committed(
    way: str, elsewhere: Callable[[Callable[[], Any]], Future[Any]]
) -> None:
    config, options = WAYS[way]
    queues.configure(QUEUE, config)
    job = push(queue=QUEUE, **options)
    worker()
    with transaction.atomic():
        assert len(claim()) == 1
        assert elsewhere(lambda: rescue.rescue([WORKER])).result(BOUND) == 0
        assert elsewhere(Worker.primary.exists).result(BOUND)
    assert rescue.rescue([WORKER]) == 1
    assert read(job.pk).state == "available"
    assert not Worker.primary.exists()


@pytest.mark.postgresql
@pytest.mark.mariadb
@pytest.mark.django_db(transaction=True)
def test_a_claim_waits_for_a_removal_and_takes_no_job(
    elsewhere: Callable[[Callable[[], Any]], Future[Any]],
) -> None:
    push(queue=QUEUE)
    worker()
    with transaction.atomic():
        removal.remove(WORKER)
        late = elsewhere(claim)
        # What MariaDB shows is a tenth of a second old, and stays so while it is asked for.
        eventually(waits, "the claim waits for the row of its worker", pause=0.2)
    assert late.result(BOUND) == []
    assert jobs().get().state == "available"


def waits() -> bool:
    """Whether a transaction waits for the lock of another one."""
    waiting = (
        "SELECT count(*) FROM pg_locks WHERE NOT granted"
        if connection.vendor == "postgresql"
        else "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
    )
    with connection.cursor() as cursor:
        cursor.execute(waiting)
        return bool(cursor.fetchone()[0])


@pytest.mark.django_db(transaction=True)
def test_the_removal_looks_for_jobs_again_under_the_lock_of_the_row() -> None:
    push(queue=QUEUE)
    worker()

    def claim_after_the_lock(execute: Any, sql: str, *rest: Any) -> Any:
        found = execute(sql, *rest)
        if not claimed and sql.startswith("SELECT") and "ojs_worker" in sql and reads_workers(sql):
            claimed.extend(claim())
        return found

    def reads_workers(sql: str) -> bool:
        return "FOR UPDATE" in sql or connection.vendor == "sqlite"

    claimed: list[Claimed] = []
    with connection.execute_wrapper(claim_after_the_lock):
        rescue.rescue([WORKER])
    assert len(claimed) == 1
    assert Worker.primary.exists()
    assert rescue.rescue([WORKER]) == 1
    assert not Worker.primary.exists()

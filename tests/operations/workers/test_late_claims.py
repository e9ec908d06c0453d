"""A claim that the database executes when its worker counts as dead takes no job.

The rescue has been before it, and would not take the job back.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection, transaction

from django_ojs.models import Worker
from django_ojs.operations import fetch, queues
from django_ojs.operations.workers import removal, rescue
from django_ojs.storage.claimed_job import Claimed
from tests.factories import WORKER, WorkerFactory, jobs, push, read
from tests.other_session import Other, until_one_waits
from tests.worker.waiting import BOUND

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
    WorkerFactory()
    assert [found.id for found in claim()] == [job.pk]


@pytest.mark.django_db
def test_a_worker_over_http_gets_jobs_before_it_has_a_row() -> None:
    # ojs-http-binding requires no registration; the FETCH makes it known.
    push(queue=QUEUE)
    assert len(fetch.fetch_remotely([QUEUE], worker_id=WORKER)) == 1


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_claim_that_finds_no_job_writes_nothing() -> None:
    WorkerFactory()
    with transaction.atomic(), connection.cursor() as cursor:
        assert claim() == []
        cursor.execute("SELECT pg_current_xact_id_if_assigned() IS NULL")
        assert cursor.fetchone() == (True,)


# SQLite has one write lock: nothing happens meanwhile.
@pytest.mark.postgresql
@pytest.mark.mariadb
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("way", WAYS)
def test_a_rescue_leaves_a_worker_whose_claim_is_not_committed(way: str) -> None:
    config, options = WAYS[way]
    queues.configure(QUEUE, config)
    job = push(queue=QUEUE, **options)
    WorkerFactory()
    with Other() as other, transaction.atomic():
        assert len(claim()) == 1
        assert other.do(lambda: rescue.rescue([WORKER])).result(BOUND) == 0
        assert other.do(Worker.primary.exists).result(BOUND)
    assert rescue.rescue([WORKER]) == 1
    assert read(job.pk).state == "available"
    assert not Worker.primary.exists()


@pytest.mark.postgresql
@pytest.mark.mariadb
@pytest.mark.django_db(transaction=True)
def test_a_claim_waits_for_a_removal_and_takes_no_job() -> None:
    push(queue=QUEUE)
    WorkerFactory()
    with Other() as other:
        with transaction.atomic():
            removal.remove(WORKER)
            late = other.do(claim)
            until_one_waits()
        assert late.result(BOUND) == []
    assert jobs().get().state == "available"


@pytest.mark.django_db(transaction=True)
def test_the_removal_looks_for_jobs_again_under_the_lock_of_the_row() -> None:
    push(queue=QUEUE)
    WorkerFactory()

    def claim_after_the_lock(execute: Any, sql: str, *rest: Any) -> Any:
        found = execute(sql, *rest)
        locks = "FOR UPDATE" in sql or connection.vendor == "sqlite"
        if not claimed and locks and sql.startswith("SELECT") and "ojs_worker" in sql:
            claimed.extend(claim())
        return found

    claimed: list[Claimed] = []
    with connection.execute_wrapper(claim_after_the_lock):
        rescue.rescue([WORKER])
    assert len(claimed) == 1
    assert Worker.primary.exists()
    assert rescue.rescue([WORKER]) == 1
    assert not Worker.primary.exists()

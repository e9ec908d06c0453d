"""Chains, groups and signatures."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from django.db import connection, transaction

from django_ojs import testing
from django_ojs.contrib.celery import canvas, chain, chord, group, signature
from django_ojs.contrib.celery.exceptions import NoEquivalent, TaskRevokedError
from django_ojs.contrib.celery.result import AsyncResult
from django_ojs.models import Job
from django_ojs.spec import ids
from django_ojs.spec.states import State


def test_a_chain_passes_each_result_to_the_next_task(
    ojs: testing.TestContext, shop: ModuleType
) -> None:
    result = (shop.add.s(1, 2) | shop.add.s(10) | shop.add.si(5, 5) | shop.counter.s()).delay()
    assert Job.objects.count() == 1
    ojs.drain()
    assert result.get() == 11
    assert list(Job.objects.order_by("created_at", "id").values_list("result", flat=True)) == [
        3,
        13,
        10,
        11,
    ]


def test_a_chain_ends_with_the_task_that_fails(ojs: testing.TestContext, shop: ModuleType) -> None:
    result = chain([shop.look_up.s("x"), shop.add.s(1)])()
    ojs.drain()
    assert Job.objects.get().state == State.DISCARDED
    assert result.state == "PENDING"


def test_a_task_that_runs_again_enqueues_what_follows_it_once(
    ojs: testing.TestContext, shop: ModuleType
) -> None:
    result = chain(shop.add.s(1, 2), shop.add.s(4)).delay()
    first = Job.objects.get()
    kept = Job.objects.filter(pk=first.pk).values("meta")[0]["meta"]
    ojs.drain(max_jobs=1)
    # As when a worker died before its ACK: the same job, with the same id, runs once more.
    assert Job.objects.filter(pk=result.id).exists()
    job = Job.objects.get(pk=first.pk)
    assert job.meta == kept
    canvas.enqueue_following(job, 3)
    assert Job.objects.count() == 2
    ojs.drain()
    assert result.get() == 7


def test_what_follows_is_signed_for_its_job(ojs: testing.TestContext, shop: ModuleType) -> None:
    chain(shop.add.s(1, 2), shop.mail.si("eve@example.com")).delay()
    meta = Job.objects.get().meta
    from django_ojs.client import enqueue

    forged = enqueue("tests.contrib.celery.tasks.add", [1, 2], meta=meta, retry={"max_attempts": 1})
    ojs.drain()
    job = Job.objects.get(pk=forged.id)
    assert (job.state, job.error["type"]) == (State.DISCARDED, "InvalidMetadata")
    assert Job.objects.filter(type__endswith="mail").count() == 1


def test_link_enqueues_a_task_with_the_result(ojs: testing.TestContext, shop: ModuleType) -> None:
    shop.add.apply_async((1, 2), link=[shop.counter.s(), shop.mail.si("ada@example.com")])
    ojs.drain()
    assert Job.objects.get(type="shop.counter").result == 4
    assert Job.objects.get(type__endswith="mail").args[0] == "ada@example.com"


def test_a_group_is_one_statement(ojs: testing.TestContext, shop: ModuleType) -> None:
    results = group(shop.add.s(number, 1) for number in range(3)).delay()
    assert (len(results), results.completed_count(), results.ready()) == (3, 0, False)
    ojs.drain()
    assert results.successful()
    assert not results.failed()
    assert [each.result for each in results] == [1, 2, 3]
    assert list(group().delay()) == []
    assert [each.args for each in group(shop.add.s(1), shop.add.s(2))] == [(1,), (2,)]


def test_a_group_is_all_or_none(ojs: testing.TestContext, shop: ModuleType) -> None:
    with pytest.raises(Exception, match="args"):
        group(shop.add.s(1), shop.add.s(object())).delay()
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    "make",
    [
        lambda add: chord([add.s(1)], add.s()),
        lambda add: group(add.s(1), add.s(2)) | add.s(),
        lambda add: group(chain(add.s(1), add.s(2)), add.s(1)),
        lambda add: chain(add.s(1), group(add.s(1))),
    ],
)
def test_what_has_no_equivalent(shop: ModuleType, make: Any) -> None:
    with pytest.raises(NoEquivalent):
        make(shop.add)


def test_signatures(ojs: testing.TestContext, shop: ModuleType) -> None:
    whole = shop.add.signature((1,), {"b": 2}).set(queue="bulk", countdown=0)
    assert (whole(), whole.apply().result, whole.type) == (3, 3, shop.add)
    assert signature(whole, priority=5).options == {"queue": "bulk", "countdown": 0, "priority": 5}
    assert signature(shop.add, (1,)).set(immutable=True).clone((9,)).args == (1,)
    whole.delay()
    assert Job.objects.get().queue == "bulk"


def test_results_of_jobs_that_end_otherwise(ojs: testing.TestContext, shop: ModuleType) -> None:
    result = shop.add.delay(1)
    with pytest.raises(RuntimeError, match="transaction"):
        result.get()
    result.revoke()
    result.revoke()
    assert (result.state, result == result.id) == ("REVOKED", True)
    assert isinstance(result.result, TaskRevokedError)
    unknown = AsyncResult(ids.uuid7())
    assert (unknown.state, unknown.result, unknown.date_done) == ("PENDING", None, None)
    assert AsyncResult("no id").state == "PENDING"


@pytest.mark.django_db(transaction=True)
def test_get_waits_outside_of_transactions(shop: ModuleType) -> None:
    result = shop.add.delay(1)
    with pytest.raises(TimeoutError, match="has not ended"):
        result.get(timeout=0.01, interval=0.001)
    result.revoke()
    with pytest.raises(TaskRevokedError):
        result.get()
    assert isinstance(result.get(propagate=False), TaskRevokedError)
    assert not connection.in_atomic_block
    with transaction.atomic():
        chain(shop.add.s(1), shop.counter.s()).delay()
        transaction.set_rollback(True)
    assert Job.objects.count() == 1

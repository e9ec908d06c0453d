"""Chains, groups and signatures."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from types import ModuleType
from typing import Any

import pytest
from django.db import connection, transaction

from django_ojs import testing
from django_ojs.client import enqueue
from django_ojs.contrib.celery import canvas, chain, chord, following, group, signature
from django_ojs.contrib.celery import result as results
from django_ojs.contrib.celery.exceptions import (
    NoEquivalent,
    NotRegistered,
    TaskError,
    TaskRevokedError,
)
from django_ojs.contrib.celery.result import AsyncResult, GroupResult
from django_ojs.extensions.outbox.models import OutboxEntry
from django_ojs.models import Job
from django_ojs.operations import queues
from django_ojs.spec import ids
from django_ojs.spec.errors import InvalidArgs
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
    assert (result.state, result.ready(), result.parent.state) == ("FAILURE", True, "FAILURE")
    with pytest.raises(TaskError, match="Unknown"):
        result.get()
    assert AsyncResult(result.id).state == "PENDING"


def test_a_chain_that_was_revoked_has_ended(ojs: testing.TestContext, shop: ModuleType) -> None:
    result = chain(shop.add.s(1), shop.add.s(2), shop.add.s(3)).delay()
    with pytest.raises(NoEquivalent, match="parent"):
        result.revoke()
    result.parent.parent.revoke()
    assert result.state == "REVOKED"


def test_a_task_that_is_ignored_ends_its_chain(ojs: testing.TestContext, shop: ModuleType) -> None:
    chain(shop.stop.s("ignore"), shop.counter.si(1)).delay()
    ojs.drain()
    assert Job.objects.get().state == State.COMPLETED


def test_a_task_runs_again_before_the_next_one_of_its_chain(
    ojs: testing.TestContext, shop: ModuleType
) -> None:
    result = chain(shop.add.s(1, 2), shop.fetch_once.s(), shop.counter.s()).delay()
    ojs.drain()
    assert result.state == "PENDING"
    ojs.drain(with_retries=True)
    assert (result.get(), Job.objects.count()) == (4, 3)


@pytest.mark.django_db(transaction=True)
def test_a_full_queue_delays_the_next_task_of_a_chain(
    ojs: testing.TestContext, shop: ModuleType
) -> None:
    """No outbox is configured. The job leaves that of this site when its queue has room."""
    result = chain(shop.add.s(1, 2), shop.counter.s().set(queue="small")).delay()
    queues.create("small", {"backpressure": {"max_depth": 1}})
    enqueue("elsewhere", queue="small")
    ojs.drain(max_jobs=1)
    entry = OutboxEntry.objects.get()
    assert (str(entry.job_id), entry.queue, result.parent.state) == (result.id, "small", "SUCCESS")
    # As when a worker died before its ACK.
    canvas.enqueue_following(following.chains_of(Job.objects.get(pk=result.parent.id)), 3)
    assert (OutboxEntry.objects.count(), Job.objects.count()) == (1, 2)


def test_the_options_of_a_chain(ojs: testing.TestContext, shop: ModuleType) -> None:
    """As in Celery they are those of the first task, and links follow the last one."""
    steps = chain(shop.add.s(2), chain(shop.counter.s(), shop.counter.s()))
    last = ids.uuid7()
    result = steps.apply_async((1,), queue="bulk", link=shop.mail.si("ada@x"), task_id=last)
    assert (Job.objects.get().queue, result.id) == ("bulk", str(last))
    ojs.drain()
    assert result.get() == 5
    assert Job.objects.filter(type__endswith="mail").exists()
    assert [len(steps.tasks[-1].links), chain().delay()] == [0, None]
    steps.set(countdown=60).link(shop.total.s())
    steps.apply_async(args=None)
    assert Job.objects.get(state=State.SCHEDULED).args == [2]


def test_a_link_of_a_later_step_is_a_chain(ojs: testing.TestContext, shop: ModuleType) -> None:
    step = shop.counter.s()
    step.link(shop.add.s(5) | shop.add.s(100))
    (shop.add.s(1, 1) | step).delay()
    ojs.drain()
    assert sorted(Job.objects.values_list("result", flat=True)) == [2, 3, 8, 108]


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
    canvas.enqueue_following(following.chains_of(job), 3)
    assert Job.objects.count() == 2
    ojs.drain()
    assert result.get() == 7


def test_what_follows_is_signed_for_its_job(ojs: testing.TestContext, shop: ModuleType) -> None:
    chain(shop.add.s(1, 2), shop.mail.si("eve@example.com")).delay()
    meta = Job.objects.get().meta
    task = "tests.contrib.celery.tasks.recorded"
    forged = enqueue(task, ["x"], meta=meta, retry={"max_attempts": 1})
    ojs.drain()
    job = Job.objects.get(pk=forged.id)
    assert (job.state, job.error["type"]) == (State.DISCARDED, "InvalidMetadata")
    assert Job.objects.filter(type__endswith="mail").count() == 1
    assert shop.calls == []  # It is rejected before it runs.


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
        lambda add: chord([add.s(1)], group(add.s())),
        lambda add: chord([add.s(1)])(),
        lambda add: chord([add.s(1).set(task_id="x")], add.s())(),
        lambda add: chord([add.s(1)], add.s().set(link=add.s()))(),
        lambda add: group([add.s(1), "add"]),
        lambda add: add.apply_async((1,), link="add"),
        lambda add: add.s(1).on_error(add.s()),
        lambda add: add.chunks([(1,), (2,)], 10),
        lambda add: chain(add.s(1), group(add.s(1))),
    ],
)
def test_what_has_no_equivalent(shop: ModuleType, make: Any) -> None:
    with pytest.raises(NoEquivalent):
        make(shop.add)


def test_chains_in_a_group(ojs: testing.TestContext, shop: ModuleType) -> None:
    results = group(shop.add.s(1) | shop.counter.s(), group(shop.add.s(1))).apply_async((5,))
    assert Job.objects.count() == 2
    ojs.drain()
    assert (results.get(), results[0].parent.result) == ([7, 6], 6)


def test_a_signature_is_changed_in_place(ojs: testing.TestContext, shop: ModuleType) -> None:
    whole = shop.add.s(1)
    copy = whole.clone()
    whole.set(queue="bulk")
    whole.apply_async(None, None, priority=5)
    assert (Job.objects.get().queue, Job.objects.get().priority) == ("bulk", 5)
    assert (whole.options, copy.options) == ({"queue": "bulk"}, {})


@pytest.fixture
def eager(shop: ModuleType, settings: Any, db: None) -> Iterator[ModuleType]:
    settings.CELERY_TASK_ALWAYS_EAGER = True
    yield shop
    assert not Job.objects.exists()


def test_signatures_chains_and_groups_are_eager(eager: ModuleType) -> None:
    add = eager.add
    result = (add.s(1, 2) | add.s(10) | add.si(5, 5)).apply_async(countdown=60)
    assert (result.get(), result.parent.get()) == (10, 13)
    assert group(add.s(1) | add.s(2), add.s(3)).delay().get() == [13, 13]
    assert group(add.s(1)).apply().get() == [11]
    assert add.s(1).set(queue="bulk").delay(1).get() == 2
    with pytest.raises(ConnectionError):
        chain(eager.fetch.s("down"), add.s(1)).delay()
    with pytest.raises(NotRegistered):
        chain(add.s(1), signature("billing.charge")).delay()


def test_eager_tasks_enqueue_their_links(eager: ModuleType) -> None:
    eager.add.apply_async((1,), link=eager.recorded.s())
    assert ("on_success", 11) in eager.calls


def test_eager_tasks_are_checked_as_jobs(eager: ModuleType) -> None:
    with pytest.raises(InvalidArgs):
        eager.add.delay()
    with pytest.raises(InvalidArgs):
        eager.add.delay(object())
    with pytest.raises(NoEquivalent):
        eager.add.apply_async((1,), countdwn=3)
    assert eager.total.delay(Decimal("1.50"), date(2026, 11, 22)).get()[0] == Decimal("3.00")
    assert eager.recorded.delay((1, 2)).get() == [1, 2]  # as JSON carries it


def test_a_task_of_another_process_is_enqueued(shop: ModuleType, db: None, settings: Any) -> None:
    settings.CELERY_TASK_ALWAYS_EAGER = True
    signature("billing.charge").delay()
    assert Job.objects.get().type == "billing.charge"


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
    unknown.revoke()
    assert (unknown.state, unknown.result, unknown.date_done) == ("PENDING", None, None)
    assert AsyncResult("no id").state == "PENDING"


def test_the_timeout_of_a_group_is_that_of_all_its_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    asked: list[tuple[float | None, dict[str, Any]]] = []

    class Task:
        def get(self, timeout: float | None, propagate: bool, **values: Any) -> str:
            nonlocal now
            asked.append((timeout, values))
            now += 4
            return "done"

    monkeypatch.setattr(results.time, "monotonic", lambda: now)
    tasks = GroupResult(Task() for _ in range(4))
    assert tasks.get(timeout=10, interval=0.1) == ["done"] * 4
    assert asked == [(left, {"interval": 0.1}) for left in (10, 6, 2, 0)]
    asked.clear()
    tasks.get()
    assert asked == [(None, {})] * 4


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


def test_a_chord_runs_its_body_with_the_results_of_the_group(
    ojs: testing.TestContext, shop: ModuleType
) -> None:
    header = [shop.add.s(1, 2), shop.add.s(3) | shop.add.s(4), shop.add.si(5, 6)]
    result = (group(header) | shop.gather.s(last=True) | shop.gather.s()).delay()
    assert result.state == "PENDING"
    ojs.drain()
    assert [each.get() for each in result.parent.parent] == [3, 17, 11]
    assert result.parent.get() == [3, 17, 11, True]
    assert result.get() == [3, 17, 11, True, False]


def test_the_body_of_a_chord_never_runs_when_a_task_fails(
    ojs: testing.TestContext, shop: ModuleType
) -> None:
    result = chord([shop.add.s(1, 2), shop.look_up.s("x")])(shop.gather.s())
    ojs.drain()
    assert len(ojs.enqueued()) == 2
    assert (result.state, result.ready()) == ("FAILURE", True)
    with pytest.raises(TaskError, match="Unknown"):
        result.get()


def test_a_chord_without_tasks_runs_its_body(ojs: testing.TestContext, shop: ModuleType) -> None:
    result = chord([], shop.gather.s()).delay()
    ojs.drain()
    assert result.get() == [False]


def test_a_chord_is_recorded_in_memory(ojs_fake: testing.TestContext, shop: ModuleType) -> None:
    # This test may not use a database: pytest-django would raise.
    result = chord([shop.add.s(1, 2)], shop.gather.si(["fixed"])).delay()
    (job,) = ojs_fake.enqueued()
    assert [each.id for each in result.parent] == [str(job.pk)]


def test_a_large_result_of_a_chord_arrives_whole(
    ojs: testing.TestContext, shop: ModuleType
) -> None:
    result = chord([shop.gather.s(["x" * 70_000]), shop.add.s(1)], shop.gather.s()).delay()
    ojs.drain()
    assert result.get() == [["x" * 70_000, False], 11, False]


def test_a_chord_here_and_now(shop: ModuleType) -> None:
    assert chord([shop.add.s(1), shop.add.s(2)], shop.gather.s()).apply().get() == [11, 12, False]

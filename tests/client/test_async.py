"""The async twins do what their elders do."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import SynchronousOnlyOperation

import django_ojs as ojs
from django_ojs.models import Job
from django_ojs.spec.ids import uuid7
from django_ojs.spec.states import State
from tests.cases import together
from tests.factories import hourly, in_state
from tests.testapp.jobs import add, describe, shout
from tests.worker.parts import claimed

pytestmark = pytest.mark.django_db

TWINS = [
    "enqueue",
    "enqueue_after_commit",
    "enqueue_batch",
    "cancel",
    "get_job",
    "activate",
    "retry",
    "pause_queue",
    "drain_queue",
    "resume_queue",
]


@together("name", TWINS, undo=True)
def test_each_function_has_a_twin_with_its_signature_and_documentation(name: str) -> None:
    plain, twin = getattr(ojs, name), getattr(ojs, f"a{name}")
    assert inspect.signature(twin) == inspect.signature(plain)
    assert twin.__doc__ == plain.__doc__


def test_the_life_of_a_job_in_async_code() -> None:
    async def life() -> list[str]:
        job = await ojs.aenqueue("test.async", ["x"], pending=True)
        seen = [str(job.state), (await job.ajob()).state]
        seen.append((await ojs.aactivate(job.id)).state)
        seen.append((await ojs.aget_job(str(job.id))).state)
        seen.append((await ojs.acancel(job.id)).state)
        return seen

    assert async_to_sync(life)() == ["pending", "pending", "available", "available", "cancelled"]


def test_a_discarded_job_is_retried_from_async_code() -> None:
    job = in_state(State.DISCARDED, retry=hourly(1))
    assert async_to_sync(ojs.aretry)(job.id).state == State.AVAILABLE


def test_a_queue_is_paused_and_resumed_from_async_code() -> None:
    assert async_to_sync(ojs.apause_queue)("slow").paused_at is not None
    assert async_to_sync(ojs.adrain_queue)("slow").draining_at is not None
    resumed = async_to_sync(ojs.aresume_queue)("slow")
    assert (resumed.paused_at, resumed.draining_at) == (None, None)


def test_handlers_and_batches_can_be_awaited() -> None:
    async def enqueue() -> list[ojs.EnqueuedJob]:
        return [
            await add.aenqueue(1, c=3),
            await describe.aenqueue("hello"),
            await shout.options(queue="loud").aenqueue("psst"),
            await ojs.aenqueue_after_commit("test.after", scheduled_at=timedelta(hours=1)),
            *await ojs.aenqueue_batch([shout.request("x"), ojs.request("test.batch")]),
        ]

    jobs = [job.model() for job in async_to_sync(enqueue)()]
    assert [(job.type, job.args, job.queue, job.state) for job in jobs] == [
        ("testapp.add", [1, 10, 3], "default", "available"),
        ("testapp.describe", ["hello"], "default", "available"),
        ("testapp.shout", ["psst"], "loud", "available"),
        ("test.after", [], "default", "scheduled"),
        ("testapp.shout", ["x"], "default", "available"),
        ("test.batch", [], "default", "available"),
    ]
    assert Job.objects.count() == len(jobs)


def test_jobs_can_be_enqueued_side_by_side() -> None:
    async def enqueue() -> list[ojs.EnqueuedJob]:
        return list(await asyncio.gather(*(add.aenqueue(n) for n in range(10))))

    jobs = [job.model() for job in async_to_sync(enqueue)()]
    assert [job.args for job in jobs] == [[n] for n in range(10)]


def test_the_plain_functions_reject_to_block_an_event_loop() -> None:
    async def enqueue() -> None:
        ojs.enqueue("test.blocking")

    with pytest.raises(SynchronousOnlyOperation):
        async_to_sync(enqueue)()
    assert Job.objects.count() == 0


async def called(function: Callable[[], object]) -> str:
    """Call a function in async code, where it must not be called. Return what it says."""
    with pytest.raises(SynchronousOnlyOperation) as caught:
        function()
    return str(caught.value)


def context() -> ojs.JobContext:
    return ojs.JobContext(
        claimed(),
        heartbeat=lambda job, by: Job.objects.exists(),
        extensions={"checkpoint": lambda job, state: save()},
    )


def save() -> None:
    Job.objects.exists()


CALLS: dict[str, Callable[[], object]] = {
    "enqueue": lambda: ojs.enqueue("test.add", [1, 2]),
    "enqueue of a handler": lambda: add.enqueue(1, 2),
    "enqueue with options": lambda: add.options(priority=1).enqueue(1, 2),
    "enqueue_batch": lambda: ojs.enqueue_batch([add.request(1, 2), add.request(3, 4)]),
    "cancel": lambda: ojs.cancel(uuid7()),
    "get_job": lambda: ojs.get_job(uuid7()),
    "activate": lambda: ojs.activate(uuid7()),
    "retry": lambda: ojs.retry(uuid7()),
    "pause_queue": lambda: ojs.pause_queue("q"),
    "drain_queue": lambda: ojs.drain_queue("q"),
    "resume_queue": lambda: ojs.resume_queue("q"),
    "enqueue of a workflow": lambda: ojs.chain(add.s(1, 2), add.s(3, 4)).enqueue(),
    "heartbeat": lambda: context().heartbeat(),
    "checkpoint": lambda: context().checkpoint({}),
}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", CALLS)
def test_a_call_in_async_code_names_its_twin(name: str) -> None:
    said = asyncio.run(called(CALLS[name]))
    assert f"await a{name.partition(' ')[0]}(" in said

"""Read by mypy and by nobody else: each line with an `# E:` is an error, no other line is."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, assert_type

import django_ojs as ojs


@ojs.job("typing.plain", queue="q", priority=ojs.HIGH, timeout=30)
def plain(to: str, count: int = 1) -> dict[str, int]:
    return {to: count}


@ojs.job("typing.context")
def with_context(ctx: ojs.JobContext, to: str, count: int = 1) -> int:
    return ctx.attempt + len(to) + count


@ojs.job("typing.asynchronous")
async def asynchronous(to: str) -> int:
    return len(to)


@ojs.job("typing.async_context")
async def async_context(ctx: ojs.JobContext, to: str) -> bytes:
    await ctx.aheartbeat()
    return to.encode()


@ojs.job("typing.nothing")
def nothing() -> None: ...


@ojs.cron("0 9 * * *", timezone="Europe/Paris", args=["a"], overlap_policy="allow", queue="q")
@ojs.job("typing.cron")
def scheduled(to: str) -> int:
    return len(to)


@ojs.cron("0 9 * * *", colour="red")  # E: call-arg
@ojs.cron("0 9 * * *", overlap_policy="never")  # E: arg-type
@ojs.job("typing.bad")
def bad_schedule() -> None: ...


@ojs.job("typing.bad", colour="red")  # E: call-arg
def bad_option() -> None: ...


@ojs.job("typing.bad", priority="high")  # E: arg-type
def bad_value() -> None: ...


@ojs.job("typing.bad", queue=1, atomic="yes")  # E: arg-type
def bad_values() -> None: ...


def calls() -> None:
    assert_type(plain("a"), dict[str, int])
    assert_type(plain("a", count=2), dict[str, int])
    assert_type(with_context("a", 2), int)
    assert_type(nothing(), None)
    assert_type(scheduled("a"), int)
    plain(1)  # E: arg-type
    plain()  # E: call-arg
    with_context()  # E: call-arg
    result: str = plain("a")  # E: assignment
    print(result)


def enqueues() -> None:
    assert_type(plain.enqueue("a"), ojs.EnqueuedJob)
    assert_type(plain.enqueue_after_commit("a", count=2), ojs.EnqueuedJob)
    assert_type(plain.request("a", 2), ojs.Request)
    assert_type(with_context.enqueue("a", count=2), ojs.EnqueuedJob)
    assert_type(asynchronous.enqueue("a"), ojs.EnqueuedJob)
    assert_type(nothing.enqueue(), ojs.EnqueuedJob)
    plain.enqueue(1)  # E: arg-type
    plain.enqueue("a", "b")  # E: arg-type
    plain.enqueue("a", 1, 2)  # E: call-arg
    plain.enqueue()  # E: call-arg
    plain.enqueue("a", urgent=True)  # E: call-arg
    plain.options(on_full="block", block_timeout=2.5).enqueue("a")
    plain.options(on_full="wait")  # E: arg-type
    ojs.enqueue_batch([], on_full="outbox")
    ojs.enqueue_batch([], on_full=True)  # E: arg-type
    plain.enqueue_after_commit(b"a")  # E: arg-type
    plain.request(["a"])  # E: arg-type
    plain.request()  # E: call-arg
    with_context.enqueue(1)  # E: arg-type
    with_context.enqueue()  # E: call-arg
    with_context.enqueue("a", 1, 2)  # E: call-arg
    with_context.request(1)  # E: arg-type
    asynchronous.enqueue(1)  # E: arg-type
    async_context.enqueue(1)  # E: arg-type
    async_context.request("a", "b")  # E: call-arg
    nothing.enqueue("a")  # E: call-arg


def workflows() -> None:
    workflow = ojs.chain(plain.s("a"), ojs.group(nothing.s(), asynchronous.s("b")), name="c")
    assert_type(workflow, ojs.WorkflowRequest)
    assert_type(workflow.enqueue(), ojs.EnqueuedWorkflow)
    assert_type(workflow.enqueue().workflow(), ojs.Workflow)
    ojs.batch(plain.options(priority=1).s("a"), workflow, on_failure=with_context.s("b"))
    ojs.graph(ojs.step("a", plain.s("a")), ojs.step("b", workflow, after=["a"]))
    plain.s(1)  # E: arg-type
    plain.s()  # E: call-arg
    with_context.s("a", 1, 2)  # E: call-arg
    ojs.chain(plain)  # E: arg-type
    ojs.chain([plain.s("a")])  # E: arg-type
    ojs.group(workflow.enqueue())  # E: arg-type
    ojs.batch(plain.s("a"), on_sucess=plain.s("b"))  # E: call-arg
    ojs.batch(plain.s("a"), on_success=workflow)  # E: arg-type
    ojs.graph(plain.s("a"))  # E: arg-type


def options(moment: datetime) -> None:
    assert_type(plain.options(priority=ojs.LOW).enqueue("a"), ojs.EnqueuedJob)
    plain.options(scheduled_at=moment, expires_at=timedelta(hours=1), meta={"a": [1]}).enqueue("a")
    plain.options(scheduled_at="+PT5M", retry={"max_attempts": 3}, tags=("a",)).enqueue("a")
    plain.options(retry=3).enqueue("a")
    plain.options(retry=ojs.RetryPolicy(max_attempts=3), pending=True, queue=None).enqueue("a")
    plain.options(priority=1).enqueue(1)  # E: arg-type
    plain.options(priority=1).enqueue()  # E: call-arg
    plain.options(priority=1).request("a", "b")  # E: arg-type
    with_context.options(priority=1).enqueue(1)  # E: arg-type
    with_context.options(priority=1).enqueue()  # E: call-arg
    plain.options(prio=1)  # E: call-arg
    plain.options(priority="1")  # E: arg-type
    plain.options(scheduled_at=5)  # E: arg-type
    plain.options(timeout="PT5S")  # E: arg-type
    plain.options(retry="3")  # E: arg-type
    plain.options(tags={"a"})  # E: arg-type
    plain.options(meta=["a"])  # E: arg-type
    plain.options(id=4711)  # E: arg-type
    plain.options("q")  # E: call-arg


async def asynchronously() -> None:
    assert_type(await asynchronous("a"), int)
    assert_type(await async_context("a"), bytes)
    assert_type(await plain.aenqueue("a"), ojs.EnqueuedJob)
    assert_type(await asynchronous.options(priority=1).aenqueue("a"), ojs.EnqueuedJob)
    await plain.aenqueue(1)  # E: arg-type
    await with_context.aenqueue()  # E: call-arg
    await asynchronous.aenqueue(1)  # E: arg-type
    await async_context.options(priority=1).aenqueue(1)  # E: arg-type
    await async_context.options(priority=1).aenqueue()  # E: call-arg
    assert_type(await ojs.aenqueue("typing.plain", ["a"]), ojs.EnqueuedJob)
    assert_type(await ojs.aenqueue_batch([plain.request("a")]), list[ojs.EnqueuedJob])
    assert_type(await ojs.aget_job("an id"), ojs.Job)
    assert_type(await ojs.acancel("an id"), ojs.Job)
    await ojs.aenqueue("typing.plain", ["a"], prio=1)  # E: call-arg
    await ojs.aenqueue("typing.plain", priority="1")  # E: arg-type
    await ojs.aget_job(4711)  # E: arg-type


def results(job: ojs.EnqueuedJob) -> None:
    assert_type(job.outcome, ojs.Outcome)
    assert_type(job.state, ojs.State | None)
    assert_type(job.job(), ojs.Job)
    print(job.pk)  # E: attr-defined
    print(job.args)  # E: attr-defined
    job.state = None  # E: misc


def by_name(price: object) -> None:
    assert_type(ojs.enqueue("typing.plain", ["a", 1]), ojs.EnqueuedJob)
    assert_type(ojs.enqueue_after_commit("typing.plain", ["a"], queue="q"), ojs.EnqueuedJob)
    assert_type(ojs.request("typing.plain", ["a"], priority=1), ojs.Request)
    batch = ojs.enqueue_batch([ojs.request("typing.plain"), plain.request("a")])
    assert_type(batch, list[ojs.EnqueuedJob])
    assert_type(ojs.get_job("an id"), ojs.Job)
    assert_type(ojs.cancel("an id"), ojs.Job)
    assert_type(ojs.activate("an id"), ojs.Job)
    assert_type(ojs.retry("an id"), ojs.Job)
    ojs.enqueue(1, [])  # E: arg-type
    ojs.enqueue("typing.plain", 1)  # E: arg-type
    ojs.enqueue("typing.plain", [price])  # E: list-item
    ojs.enqueue("typing.plain", [], prio=1)  # E: call-arg
    ojs.enqueue("typing.plain", [], priority="1")  # E: arg-type
    ojs.enqueue_after_commit("typing.plain", [], prio=1)  # E: call-arg
    ojs.request("typing.plain", [], queue=1)  # E: arg-type
    ojs.enqueue_batch([plain])  # E: list-item
    ojs.enqueue_batch(["typing.plain"])  # E: list-item
    ojs.get_job(4711)  # E: arg-type
    ojs.enqeue("typing.plain")  # E: attr-defined


def responses(context: ojs.JobContext) -> Any:
    context.set_result({"a": [1, None]})
    context.set_result(context)  # E: arg-type
    assert_type(context.heartbeat(), bool)
    assert_type(ojs.current_context(), ojs.JobContext | None)
    context.attempt = 2  # E: misc
    raise ojs.Retry("later", delay=timedelta(minutes=1))

"""What a worker does, in the test's own transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from asgiref.sync import async_to_sync

from django_ojs.context import JobContext
from django_ojs.handler_registry import registry
from django_ojs.models import Job
from django_ojs.operations import ack, fail, fetch
from django_ojs.spec.failure import Failure
from django_ojs.storage.transitions import Claim


def work(worker_id: str = "worker-a", *queues: str) -> int:
    """Run the available jobs of these queues, one after the other. Return how many."""
    claimed = fetch.fetch(list(queues) or ["default", "email"], count=10, worker_id=worker_id)
    for job in claimed:
        handler = registry.handlers[job.type]
        claim = Claim(worker_id=job.worker_id, run=job.run)
        context = JobContext(job, is_async=handler.is_async)
        try:
            result = context.result(_call(handler.run, context, is_async=handler.is_async))
            ack.ack(job.id, claim=claim, result=result)
        except (Exception, SystemExit) as error:
            failure = Failure.from_exception(error, keep_class=handler.keeps_exception_class)
            fail.fail(job.id, failure, claim=claim)
    return len(claimed)


def _call(run: Callable[[JobContext], Any], context: JobContext, *, is_async: bool) -> Any:
    if not is_async:
        return run(context)

    async def called() -> Any:
        return await run(context)

    return async_to_sync(called)()


def job_of(result: Any) -> Job:
    """Return the row of a task's result."""
    return Job.objects.get(pk=UUID(result.id))

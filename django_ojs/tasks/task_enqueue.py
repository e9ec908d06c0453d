"""Enqueue a task as a job in the caller's transaction, and find its result."""

from datetime import UTC
from typing import Any, cast

from django_ojs import hooks
from django_ojs.enqueue_options import NO_OPTIONS, Options, Request, envelope_of, push_options_of
from django_ojs.handler_registry import registry
from django_ojs.job_type import job_type_of
from django_ojs.operations import info
from django_ojs.operations.enqueue.caller_database import foreign_transaction
from django_ojs.operations.enqueue.result import EnqueuedJob, Outcome
from django_ojs.operations.push import push
from django_ojs.spec import ids
from django_ojs.spec.errors import OJSError
from django_ojs.storage import database
from django_ojs.storage.dialects.job_row import NewRow
from django_ojs.tasks.compat import (
    AnyResult,
    AnyTask,
    BaseTaskBackend,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    normalize_json,
    task_enqueued,
)
from django_ojs.tasks.exceptions import TaskDiscarded
from django_ojs.tasks.handler import META, TaskHandler
from django_ojs.tasks.queue_names import job_queue
from django_ojs.tasks.results import error_of


def enqueue(
    backend: BaseTaskBackend, task: AnyTask, args: list[Any], kwargs: dict[str, Any]
) -> AnyResult:
    """Store a job for a task whose handler is registered. Raises as `ojs.enqueue` does."""
    handler: TaskHandler = registry.handlers[job_type_of(task.module_path)]
    args = cast("list[Any]", normalize_json(args))
    kwargs = cast("dict[str, Any]", normalize_json(kwargs))
    # How the task was called, as far as the arguments of the job do not show it.
    meta: dict[str, Any] = {}
    if kwargs:
        meta |= {"positional": len(args), "keywords": list(kwargs)}
    if backend.alias != handler.task.backend:
        meta["backend"] = backend.alias
    given = Options(
        queue=job_queue(backend, task.queue_name),
        priority=int(task.priority),
        # The time is given as text, which keeps its microseconds.
        scheduled_at=task.run_after and task.run_after.astimezone(UTC).isoformat(),
        meta={META: meta} if meta else None,
    )
    request = Request(
        type=handler.type,
        args=handler.bind(tuple(args), kwargs),
        options=given.over(getattr(task, "options", None) or NO_OPTIONS),
    )
    job = push(envelope_of(request), push_options_of(request))
    if job.outcome is Outcome.DUPLICATE:
        return handler.result_of(job.model())
    sender = type(backend)
    stand_in = hooks.registry.stand_ins.get("get")
    if stand_in is not None and job.outcome is Outcome.STORED:
        kept = stand_in(job.id)
        if kept is not None:
            result = handler.result_of(kept)
            task_enqueued.send_robust(sender, task_result=result)
            return result
    result = _result(backend, task, job, args, kwargs)
    if job.outcome is not Outcome.DROPPED:
        using = foreign_transaction() if job.outcome is Outcome.OUTBOX else None
        database.after_commit(lambda: task_enqueued.send_robust(sender, task_result=result), using)
    return result


def get_result(result_id: str) -> AnyResult:
    """Return the result of a job. Raises TaskResultDoesNotExist."""
    try:
        job = info.info(ids.parse_id(result_id))
    except OJSError:
        raise TaskResultDoesNotExist(result_id) from None
    handler = registry.handlers.get(job.type)
    if not isinstance(handler, TaskHandler):
        # A producer may have invented the type, so no module is imported for it.
        raise TaskResultDoesNotExist(
            f"{result_id} is a job of the type {job.type!r}, which is no task of this process. "
            "Tasks are found in the modules tasks.py of installed apps and in those that "
            'OPTIONS["modules"] of the backend names.'
        )
    return handler.result_of(job)


def _result(
    backend: BaseTaskBackend,
    task: AnyTask,
    job: EnqueuedJob,
    args: list[Any],
    kwargs: dict[str, Any],
) -> AnyResult:
    dropped = job.outcome is Outcome.DROPPED
    error = error_of(TaskDiscarded, "An enqueue middleware dropped the job.")
    return TaskResult(
        task=task,
        id=str(job.id),
        status=TaskResultStatus.FAILED if dropped else TaskResultStatus.READY,
        enqueued_at=job.row.created_at if isinstance(job.row, NewRow) else None,
        started_at=None,
        last_attempted_at=None,
        finished_at=None,
        args=args,
        kwargs=kwargs,
        backend=backend.alias,
        errors=[error] if dropped else [],
        worker_ids=[],
    )

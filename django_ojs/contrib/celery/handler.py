"""Celery tasks as handlers: what a worker calls, and what an enqueue binds arguments with."""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import Any

from django.apps import apps

from django_ojs.context import JobContext
from django_ojs.contrib.celery import canvas, following
from django_ojs.contrib.celery.configuration import configuration
from django_ojs.contrib.celery.exceptions import Ignore, Reject
from django_ojs.contrib.celery.request import TaskRequest
from django_ojs.contrib.celery.run_task import run_task
from django_ojs.contrib.celery.task_options import options_of
from django_ojs.contrib.celery.values import decode, encode
from django_ojs.handlers import check_defaults
from django_ojs.job_type import job_type_of
from django_ojs.keyword_handlers import KeywordHandler
from django_ojs.spec import failure
from django_ojs.spec.json import JSON
from django_ojs.storage.claimed_job import Claimed


class CeleryHandler(KeywordHandler):
    """The handler of a `task.Task`, which imports this module."""

    takes_context = False

    def __init__(self, task: Any) -> None:
        self.task = task
        options = options_of(task)
        job_type = job_type_of(task.name)
        check_defaults(job_type, options)
        super().__init__(task.run, job_type, atomic=False, options=options)

    def run(self, context: JobContext) -> Any:
        """Run the task, and enqueue what follows it; see `Handler.run`."""
        job = context.job
        # This comes first, because a task with a wrong signature must have no effect.
        chains = following.chains_of(job)
        given = context.args
        if following.takes_result(job.meta) and job.workflow_id is not None and given:
            given = [_whole_result(job), *given[1:]]
        args, kwargs = self.arguments_of(given, job.meta)
        request = TaskRequest(
            id=str(job.id),
            task=self.task.name,
            args=tuple(args),
            kwargs=kwargs,
            retries=following.retries_of(job.meta) + job.attempt - job.returned - 1,
            called_directly=False,
            headers=following.headers_of(job),
            delivery_info={"routing_key": job.queue, "priority": job.priority},
            hostname=f"ojs@{socket.gethostname()}",
        )
        # The class of the task may define `__call__`. A test may have replaced the function.
        function = self.task if self.function == self.task.run else self.function
        try:
            result = encode(run_task(self.task, request, function))
        except Ignore:
            return None  # Celery enqueues nothing after it either.
        except Reject as rejected:
            if rejected.requeue:
                raise failure.Retry(str(rejected.reason or "Rejected."), timedelta(0)) from rejected
            raise failure.Discard(str(rejected.reason or "Rejected.")) from rejected
        except failure.HandlerResponse:
            raise
        except Exception as error:
            # Celery retries only what the task asks for. The error's class may forbid setattr().
            object.__setattr__(error, "ojs_retryable", False)
            raise
        canvas.enqueue_following(chains, result)
        return None if self._ignores_result() else result

    def arguments_of(
        self, args: list[JSON], meta: dict[str, JSON]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return how to call the task, by position and by name as the caller gave them."""
        positional, keywords = self.call_arguments(decode(args))
        number = following.positional_of(meta, len(positional))
        names = list(self.callable_signature.parameters)[number : len(positional)]
        return positional[:number], {
            **dict(zip(names, positional[number:], strict=True)),
            **keywords,
        }

    def _ignores_result(self) -> bool:
        if self.task.ignore_result is None:
            return bool(configuration.task_ignore_result)
        return bool(self.task.ignore_result)


def _whole_result(job: Claimed) -> JSON:
    """Return the result of the step before, even if it is too large to be passed on."""
    assert job.workflow_id is not None
    if not apps.is_installed("django_ojs.extensions.workflows"):
        return job.parent_results[-1]
    from django_ojs.extensions.workflows.operations import whole_result

    return whole_result(job.workflow_id, job.parent_results[-1])

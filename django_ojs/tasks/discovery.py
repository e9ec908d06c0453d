"""Find the tasks of a project, and send Django's signal when one has finished."""

from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import autodiscover_modules

from django_ojs import signals
from django_ojs.handler_registry import registry
from django_ojs.models import Job
from django_ojs.storage.claimed_job import Claimed
from django_ojs.tasks.backend import OJSBackend, waiting
from django_ojs.tasks.compat import task_backends, task_finished
from django_ojs.tasks.handler import TaskHandler, register

_FINISHED = (signals.job_completed, signals.job_discarded, signals.job_cancelled)


def start() -> None:
    """Prepare a process of a project that has an `OJSBackend`."""
    while waiting:
        register(waiting.pop(0))
    for backend in _backends():
        for module in backend.options.get("modules", ()):
            import_module(module)
    autodiscover_modules("tasks")
    connect()


def _backends() -> Iterator[OJSBackend]:
    for alias in task_backends.settings:
        # Django reports a backend that it cannot make when the backend is used.
        with suppress(ImproperlyConfigured):
            backend = task_backends[alias]
            if isinstance(backend, OJSBackend):
                yield backend


def connect() -> None:
    """Send `task_finished` after the commit that ended a task's job, in the process that did it."""
    for signal in _FINISHED:
        signal.connect(send_finished, sender=Job, dispatch_uid="django_ojs.tasks")


def disconnect() -> None:
    """Undo `connect`."""
    for signal in _FINISHED:
        signal.disconnect(sender=Job, dispatch_uid="django_ojs.tasks")


def send_finished(*, job: Job | Claimed, **kwargs: Any) -> None:
    handler = registry.handlers.get(job.type)
    if isinstance(handler, TaskHandler):
        result = handler.result_of(job)
        task_finished.send_robust(type(result.task.get_backend()), task_result=result)

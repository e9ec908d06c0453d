"""Django's own tests of its backends, unchanged, against ours; each exception has its reason.

Django's packages do not contain its tests. With `OJS_DJANGO_TESTS` set to the folder `tests` of
Django's source, of the version that is installed, they run; otherwise they are skipped.
"""

from __future__ import annotations

import inspect
import os
import sys
from importlib import import_module
from typing import Any
from unittest import mock

import django
import pytest
from django.test import TestCase, override_settings

from django_ojs.handler_registry import registry
from django_ojs.models import Job
from tests.tasks.names import OJSBackend
from tests.tasks.work import work

FOLDER = os.environ.get("OJS_DJANGO_TESTS", "")
if not FOLDER or django.VERSION < (6, 0):
    pytest.skip("OJS_DJANGO_TESTS does not name Django's tests", allow_module_level=True)

HERE = __name__
ONCE = {"DEFAULT_RETRY": {"max_attempts": 1}}

DUMMY = "it is about Django's DummyBackend itself"
ASYNC_QUERY = "it reads a result in a coroutine, without the async method"
REASONS = {
    ("Tasks", "test_using_correct_backend"): DUMMY,
    ("Tasks", "test_get_backend"): DUMMY,
    ("Tasks", "test_refresh_result"): ASYNC_QUERY,
    ("Tasks", "test_enqueue_task_async"): ASYNC_QUERY,
    ("Stored", "test_using_correct_backend"): DUMMY,
    ("Stored", "test_refresh_result"): "it changes the object in which DummyBackend keeps a result",
    ("Stored", "test_refresh_result_async"): "it changes the object of DummyBackend",
    ("Stored", "test_enqueue_task_async"): ASYNC_QUERY,
    ("Ran", "test_using_correct_backend"): "it is about Django's ImmediateBackend itself",
    ("Ran", "test_cannot_get_result"): "results can be read",
    ("Ran", "test_cannot_refresh_result"): "results can be read",
    ("Ran", "test_cannot_pass_run_after"): "run_after is supported",
    ("Ran", "test_catches_exception"): "the signal is sent after the commit, not in the `except`",
    ("Ran", "test_complex_exception"): "a stored traceback has no lines of source",
}


class StoringBackend(OJSBackend):
    """Our backend, with the two names of DummyBackend that the tests use."""

    def enqueue(self, *args: Any, **kwargs: Any) -> Any:
        with TestCase.captureOnCommitCallbacks(execute=True):
            return super().enqueue(*args, **kwargs)

    @property
    def results(self) -> list[Any]:
        return [self.get_result(str(job.pk)) for job in Job.objects.order_by("pk")]

    def clear(self) -> None:
        Job.objects.all().delete()


class RunningBackend(StoringBackend):
    """Our backend and a worker that runs each task when it is enqueued."""

    def enqueue(self, *args: Any, **kwargs: Any) -> Any:
        result = super().enqueue(*args, **kwargs)
        with TestCase.captureOnCommitCallbacks(execute=True):
            work("worker-a", result.task.queue_name)
        result.refresh()
        return result


def backend(kind: type[OJSBackend], *queues: str) -> dict[str, Any]:
    return {
        "BACKEND": f"{HERE}.{kind.__name__}",
        "QUEUES": list(queues),
        "OPTIONS": {"queues": {"queue_1": "queue-1", "unknown_queue": "unknown-queue"}},
    }


def load(name: str) -> Any:
    """Import a module of Django's tests, whose tasks are ours then."""
    with (
        mock.patch.object(sys, "path", [FOLDER, *sys.path]),
        override_settings(TASKS={"default": backend(StoringBackend)}),
    ):
        return import_module(f"tasks.{name}")


def against_ours(name: str, theirs: type, tasks: dict[str, Any]) -> type:
    """Return a test case of Django's with other settings, in transactions of a database."""
    made = type(name, (theirs, TestCase), {"__module__": HERE})
    for (case, method), reason in REASONS.items():
        if case == name:
            function = getattr(made, method)
            # Strict: an exception that is none any more fails. Subtests are reported one by one.
            mark = (
                pytest.mark.skip if "subTest" in inspect.getsource(function) else pytest.mark.xfail
            )
            setattr(made, method, mark(reason=reason)(function))
    return override_settings(TASKS=tasks, OJS=ONCE)(made)


_before = dict(registry.handlers)
Tasks = against_ours(
    "Tasks",
    load("test_tasks").TaskTestCase,
    {
        "default": backend(StoringBackend, "default", "queue_1"),
        "immediate": backend(RunningBackend),
        "missing": {"BACKEND": "does.not.exist"},
    },
)
Stored = against_ours(
    "Stored",
    load("test_dummy_backend").DummyBackendTestCase,
    {"default": backend(StoringBackend)},
)
Ran = against_ours(
    "Ran",
    load("test_immediate_backend").ImmediateBackendTestCase,
    {"default": backend(RunningBackend)},
)
HANDLERS = {name: each for name, each in registry.handlers.items() if name not in _before}
for _name in HANDLERS:
    registry.remove(_name)


@pytest.fixture(autouse=True)
def handlers_and_signals() -> Any:
    from django_ojs.tasks import discovery

    registry.handlers.update(HANDLERS)
    discovery.connect()
    yield
    discovery.disconnect()
    for name in HANDLERS:
        registry.handlers.pop(name, None)

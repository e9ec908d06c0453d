"""`OJSBackend`, and the tasks that are declared with it.

Django may import this module, and declare tasks, before the models of the apps are loaded. So code
that needs models is imported when it is used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast

from django.apps import apps
from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured

from django_ojs.spec.envelope import check_queue
from django_ojs.spec.errors import InvalidRequest, OJSError
from django_ojs.spec.suggestions import allowed_name
from django_ojs.tasks.compat import (
    AnyResult,
    AnyTask,
    BaseTaskBackend,
    GenericTask,
    InvalidTask,
    Task,
    TaskResult,
)
from django_ojs.tasks.queue_names import job_queue

if TYPE_CHECKING:
    from django_ojs.enqueue_options import OptionArguments, Options

P = ParamSpec("P")
R = TypeVar("R")

#: Tasks that were declared before the models were loaded; `discovery` registers them.
waiting: Final[list[AnyTask]] = []


@dataclass(frozen=True, kw_only=True)
class OJSTask(GenericTask[P, R]):
    """A task with the options of a job."""

    options: Options | None = None

    def using(
        self,
        *,
        priority: int | None = None,
        queue_name: str | None = None,
        run_after: datetime | None = None,
        backend: str | None = None,
        **options: Any,
    ) -> OJSTask[P, R]:
        """Return the task with other values for Django's arguments and for options of a job."""
        values: dict[str, Any] = {
            "priority": priority,
            "queue_name": queue_name,
            "run_after": run_after,
            "backend": backend,
        }
        changes = {name: value for name, value in values.items() if value is not None}
        if options:
            given = read_options(cast("OptionArguments", options))
            changes["options"] = given if self.options is None else given.over(self.options)
        return replace(self, **changes)


def read_options(given: OptionArguments) -> Options:
    """Return keyword arguments as options. Raises InvalidRequest for one that is Django's own."""
    from django_ojs import enqueue_options

    for name, instead in _DJANGOS.items():
        if name in given:
            raise InvalidRequest.of(name, f"is an argument of Django's: write {instead}.")
    return enqueue_options.read_options(given)


_DJANGOS: Final = {
    "queue": "@task(queue_name=...) or using(queue_name=...)",
    "priority": "@task(priority=...) or using(priority=...)",
    "scheduled_at": "using(run_after=...)",
}


class OJSBackend(BaseTaskBackend):
    """Stores tasks as jobs, in the caller's transaction; `manage.py ojs_worker` runs them."""

    task_class = OJSTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def validate_task(self, task: AnyTask) -> None:
        """Check and register a task for the workers. Raises InvalidTask, ImproperlyConfigured."""
        try:
            check_queue(job_queue(self, task.queue_name), field="queue_name")
        except OJSError as error:
            raise InvalidTask(_cure(task.queue_name, error)) from None
        super().validate_task(task)
        if not isinstance(task, OJSTask):
            raise InvalidTask(
                f"{task.module_path} was declared for another backend than {self.alias!r}, and no "
                f"worker would find it: write @task(backend={self.alias!r})."
            )
        if not apps.models_ready:
            waiting.append(task)
        elif not apps.is_installed("django_ojs"):
            raise ImproperlyConfigured("TASKS needs 'django_ojs' in INSTALLED_APPS.")
        else:
            from django_ojs.tasks.handler import register

            register(task)

    def enqueue(
        self, task: Task[P, R], args: list[Any], kwargs: dict[str, Any]
    ) -> TaskResult[P, R]:
        """Store a job in the transaction that is open on the jobs' database.

        Raises as `ojs.enqueue` does, and TypeError for arguments that are not JSON.
        """
        from django_ojs.tasks import task_enqueue

        self.validate_task(task)
        return cast("TaskResult[P, R]", task_enqueue.enqueue(self, task, args, kwargs))

    def get_result(self, result_id: str) -> AnyResult:
        """Return the result of a task as it is now. Raises TaskResultDoesNotExist."""
        from django_ojs.tasks import task_enqueue

        return task_enqueue.get_result(result_id)

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """Check OPTIONS and QUEUES of the backend."""
        found: list[CheckMessage] = [*super().check(**kwargs)]
        for name in sorted(set(self.options) - {"modules", "queues"}):
            found.append(
                self._error(f"['OPTIONS'] has no {name!r}; it may have 'modules' and 'queues'.")
            )
        for queue in sorted(self.queues):
            try:
                check_queue(job_queue(self, queue))
            except OJSError as error:
                found.append(self._error(f"['QUEUES']: {_cure(queue, error)}"))
        return found

    def _error(self, problem: str) -> Error:
        return Error(f"TASKS[{self.alias!r}]{problem}", id="django_ojs.E007")


def _cure(queue: str, error: OJSError) -> str:
    """Return what is wrong with the name of a queue, and a similar name that is allowed."""
    similar = allowed_name(queue)
    return (
        f"{queue!r} is no name of a queue: {error.message}. Name it {similar!r}; where the name is "
        f"another package's, set OPTIONS['queues'] = {{{queue!r}: {similar!r}}}."
    )

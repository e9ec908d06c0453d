"""Tasks as handlers: a worker calls them, and an enqueue binds arguments with them."""

from typing import Any, Final

from asgiref.sync import sync_to_async

from django_ojs.context import JobContext
from django_ojs.enqueue_options import Options
from django_ojs.handler_registry import registry
from django_ojs.handlers import check_defaults
from django_ojs.job_type import job_type_of
from django_ojs.keyword_handlers import KeywordHandler
from django_ojs.models import Job
from django_ojs.spec.errors import OJSError
from django_ojs.spec.failure import ResultRejected
from django_ojs.storage.claimed_job import Claimed
from django_ojs.tasks import results
from django_ojs.tasks.compat import (
    AnyResult,
    AnyTask,
    TaskContext,
    normalize_json,
    task_backends,
    task_started,
)
from django_ojs.tasks.queue_names import job_queue

#: The member of `meta` that says how the task was called; see `task_enqueue.enqueue`.
META: Final = "django_task"


class TaskHandler(KeywordHandler):
    """The handler of a task."""

    keeps_exception_class = True

    def __init__(self, task: AnyTask, *, atomic: bool = False, options: Options) -> None:
        self.task = task
        self.takes_context = task.takes_context
        super().__init__(task.func, job_type_of(task.module_path), atomic=atomic, options=options)

    def run(self, context: JobContext) -> Any:
        """Call the function with the job's arguments; see `Handler.run`."""
        args, kwargs = self.call_arguments(context.args)
        if self.is_async:
            return self._run_async(context, args, kwargs)
        result = self.result_of(context.job)
        task_started.send_robust(type(result.task.get_backend()), task_result=result)
        if self.takes_context:
            args = [TaskContext(task_result=result), *args]
        return self._json(self.function(*args, **kwargs))

    async def _run_async(self, context: JobContext, args: list[Any], kwargs: dict[str, Any]) -> Any:
        result = await sync_to_async(self.result_of)(context.job)
        await task_started.asend_robust(type(result.task.get_backend()), task_result=result)
        if self.takes_context:
            args = [TaskContext(task_result=result), *args]
        return self._json(await self.function(*args, **kwargs))

    def _json(self, returned: Any) -> Any:
        try:
            return normalize_json(returned)
        except (TypeError, ValueError, RecursionError) as error:
            raise ResultRejected(f"{error} (the task: {self.place})") from None

    def result_of(self, job: Job | Claimed) -> AnyResult:
        """Return a job of this task as `django.tasks` shows it."""
        extra = job.meta.get(META)
        given: dict[str, Any] = extra if isinstance(extra, dict) else {}
        backend = given.get("backend")
        if not isinstance(backend, str) or backend not in task_backends.settings:
            backend = self.task.backend
        task = results.stored_task(self.task, job, backend)
        return results.result_of(job, task, *self._given_arguments(job.args, given))

    def _given_arguments(
        self, args: list[Any], given: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments as `enqueue` was called with them, which `given` describes."""
        try:
            positional, keywords = self.call_arguments(args)
            if "keywords" not in given:
                return positional, keywords
            bound = self.callable_signature.bind(*positional, **keywords)
            values = {**bound.arguments, **keywords}
            names = {name: values[name] for name in given["keywords"]}
            return positional[: given["positional"]], names
        except (OJSError, TypeError, KeyError):
            # Another client has enqueued the job, or the signature has changed since then.
            return args, {}


def register(task: AnyTask, options: Options | None = None, *, atomic: bool = False) -> None:
    """Make a task the handler of its job type.

    Without options, only the first task of a function is registered: `using` makes others from it.
    Raises ImproperlyConfigured when the type has another handler.
    """
    job_type = job_type_of(task.module_path)
    known = registry.handlers.get(job_type)
    if options is None and known is not None and known.function is task.func:
        return
    queue = job_queue(task.get_backend(), task.queue_name)
    given = Options(queue=queue, priority=int(task.priority))
    defaults = given if options is None else options.over(given)
    check_defaults(job_type, defaults)
    registry.add(TaskHandler(task, atomic=atomic, options=defaults))

"""Tasks as handlers: what a worker calls, and what an enqueue binds arguments with."""

import inspect
from typing import Any, Final

from asgiref.sync import sync_to_async

from django_ojs.context import JobContext
from django_ojs.handlers import Handler, check_defaults
from django_ojs.models import Job
from django_ojs.options import Options
from django_ojs.registry import registry
from django_ojs.spec.errors import InvalidArgs, OJSError
from django_ojs.spec.json import JSON
from django_ojs.storage.claims import Claimed
from django_ojs.tasks import results
from django_ojs.tasks.compat import (
    AnyResult,
    AnyTask,
    TaskContext,
    normalize_json,
    task_backends,
    task_started,
)
from django_ojs.tasks.job_type import job_type_of
from django_ojs.tasks.queue_names import job_queue
from django_ojs.unique_arguments import has_json_default

#: The member of `meta` in which a job keeps what its arguments do not say.
META: Final = "django_task"

_KEYWORDS = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)


class TaskHandler(Handler[..., Any]):
    """The handler of a task.

    The arguments of its jobs are positional, by the signature. A function with keyword-only
    parameters or `**kwargs` takes one more argument, the last one: an object of these.
    """

    keeps_exception_class = True

    def __init__(self, task: AnyTask, *, atomic: bool = False, options: Options) -> None:
        self.task = task
        super().__init__(task.func, job_type_of(task.module_path), atomic=atomic, options=options)

    def read_signature(self) -> inspect.Signature:
        """Return the signature of the job's arguments."""
        self.takes_context = self.task.takes_context
        signature = inspect.signature(self.function)
        parameters = list(signature.parameters.values())[1 if self.takes_context else 0 :]
        self._callable = signature.replace(parameters=parameters)
        positional = [p for p in parameters if p.kind not in _KEYWORDS]
        self._has_keywords = len(positional) < len(parameters)
        if self._has_keywords:
            kind = inspect.Parameter.POSITIONAL_ONLY
            # Every other parameter stands before it, `*args` as well: only `bind` knows its place.
            positional = [p for p in positional if p.kind is not inspect.Parameter.VAR_POSITIONAL]
            positional = [p.replace(kind=kind, default=inspect.Parameter.empty) for p in positional]
            positional.append(inspect.Parameter("kwargs", kind, annotation=dict))
        return signature.replace(parameters=positional)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[JSON]:
        """Return the positional arguments of a job. Raises InvalidArgs when they do not match."""
        if not self._has_keywords:
            return super().bind(args, kwargs)
        try:
            bound = self._callable.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidArgs(
                f"The arguments do not fit {self.type}{self._callable}: {error}.",
                details={"field": "args"},
            ) from None
        # With the defaults, so that a unique policy sees the same arguments however they are given.
        for parameter in self._callable.parameters.values():
            if parameter.kind in _KEYWORDS or not has_json_default(parameter):
                break
            if parameter.kind is not inspect.Parameter.VAR_POSITIONAL:
                bound.arguments.setdefault(parameter.name, parameter.default)
        return [*bound.args, bound.kwargs]

    def run(self, context: JobContext) -> Any:
        """Call the function with the job's arguments; see `Handler.run`."""
        args, kwargs = self._call_arguments(context.args)
        if self.is_async:
            return self._run_async(context, args, kwargs)
        result = self.result_of(context.job)
        task_started.send_robust(type(result.task.get_backend()), task_result=result)
        if self.takes_context:
            args = [TaskContext(task_result=result), *args]
        return normalize_json(self.function(*args, **kwargs))

    async def _run_async(self, context: JobContext, args: list[Any], kwargs: dict[str, Any]) -> Any:
        result = await sync_to_async(self.result_of)(context.job)
        await task_started.asend_robust(type(result.task.get_backend()), task_result=result)
        if self.takes_context:
            args = [TaskContext(task_result=result), *args]
        return normalize_json(await self.function(*args, **kwargs))

    def result_of(self, job: Job | Claimed) -> AnyResult:
        """Return a job of this task as `django.tasks` shows it."""
        extra = job.meta.get(META)
        given: dict[str, Any] = extra if isinstance(extra, dict) else {}
        backend = given.get("backend")
        if not isinstance(backend, str) or backend not in task_backends.settings:
            backend = self.task.backend
        task = results.stored_task(self.task, job, backend)
        return results.result_of(job, task, *self._given_arguments(job.args, given))

    def _call_arguments(self, args: list[Any]) -> tuple[list[Any], dict[str, Any]]:
        if not self._has_keywords:
            return args, {}
        if not args or not isinstance(args[-1], dict):
            raise InvalidArgs.of(
                "args", f"of {self.type}{self._callable} must end with an object of its keywords"
            )
        return args[:-1], args[-1]

    def split_keywords(self, args: list[JSON]) -> tuple[list[JSON], dict[str, JSON] | None]:
        """Return the positional arguments of a job and its keywords; see `Handler`."""
        if self._has_keywords and args and isinstance(args[-1], dict):
            return args[:-1], args[-1]
        return args, None

    def keyword_parameter(self, name: str) -> inspect.Parameter | None:
        """Return the keyword-only parameter of a name, or `**kwargs`; see `Handler`."""
        if name in self.parameters and name in self._callable.parameters:
            return None
        parameters = [p for p in self._callable.parameters.values() if p.kind in _KEYWORDS]
        return next(
            (p for p in parameters if p.name == name or p.kind is inspect.Parameter.VAR_KEYWORD),
            None,
        )

    def _given_arguments(
        self, args: list[Any], given: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments as `enqueue` was called with them, which `given` describes."""
        try:
            positional, keywords = self._call_arguments(args)
            if "keywords" not in given:
                return positional, keywords
            bound = self._callable.bind(*positional, **keywords)
            values = {**bound.arguments, **keywords}
            names = {name: values[name] for name in given["keywords"]}
            return positional[: given["positional"]], names
        except (OJSError, TypeError, KeyError):
            # Another client has enqueued it, or the signature has changed since.
            return args, {}


def register(task: AnyTask, options: Options | None = None, *, atomic: bool = False) -> None:
    """Make a task the handler of its job type.

    Without options this is done once: `using` makes further tasks of the same function. Raises
    ImproperlyConfigured when the type has another handler.
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

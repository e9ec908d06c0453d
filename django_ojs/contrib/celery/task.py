"""`Task` and `@shared_task`."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

from django.utils import timezone
from django.utils.functional import cached_property

from django_ojs.context import current_context
from django_ojs.contrib.celery import call_options, registration
from django_ojs.contrib.celery.canvas import Signature, enqueue_again, links_of, signature
from django_ojs.contrib.celery.configuration import configuration
from django_ojs.contrib.celery.exceptions import MaxRetriesExceededError, NoEquivalent, Retry
from django_ojs.contrib.celery.request import TaskRequest, current_request
from django_ojs.spec import ids

if TYPE_CHECKING:
    from django_ojs.contrib.celery.handler import CeleryHandler
    from django_ojs.contrib.celery.result import AsyncResult, EagerResult

Arguments = Iterable[Any] | None
Keywords = Mapping[str, Any] | None

#: Options about messages and the result backend of Celery, which have no effect here.
_WITHOUT_EFFECT: Final = frozenset(
    {
        *("acks_late", "acks_on_failure_or_timeout", "reject_on_worker_lost", "track_started"),
        *("store_errors_even_if_ignored", "send_events", "trail", "compression", "typing"),
        *("after_return_trail", "resultrepr_maxsize", "send_error_emails", "shared", "lazy"),
        "store_eager_result",
    }
)
_INSTEAD: Final = {
    "pydantic": "Validate in the task.",
    "unique": "Declare the handler with @ojs.job.",
}


class Task:
    """A task of Celery. `delay` and `apply_async` enqueue it as a job."""

    name: str = ""
    bind: ClassVar[bool] = False
    max_retries: int | None = 3
    default_retry_delay: float = 180
    autoretry_for: tuple[type[BaseException], ...] = ()
    dont_autoretry_for: tuple[type[BaseException], ...] = ()
    retry_kwargs: Mapping[str, Any] = {}
    retry_backoff: bool | float = False
    retry_backoff_max: int = 600
    retry_jitter: bool = True
    throws: tuple[type[BaseException], ...] = ()
    queue: str | None = None
    priority: int | None = None
    expires: Any = None
    time_limit: float | None = None
    soft_time_limit: float | None = None
    rate_limit: str | float | None = None
    ignore_result: bool | None = None
    serializer: str = "json"
    abstract: bool = True

    #: For `except self.MaxRetriesExceededError`.
    MaxRetriesExceededError: ClassVar = MaxRetriesExceededError

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Do the work; a subclass defines it."""
        raise NotImplementedError(f"{type(self).__name__} has no run().")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<@task: {self.name}>"

    @cached_property
    def handler(self) -> CeleryHandler:
        """The handler of its jobs. It needs the models of the apps."""
        from django_ojs.contrib.celery.handler import CeleryHandler

        return CeleryHandler(self)

    @property
    def module_path(self) -> str:
        """The name, by which `django_ojs.testing` finds the jobs of a task."""
        return self.name

    @property
    def request(self) -> TaskRequest:
        """The current run; outside of a run, a request with `called_directly`."""
        return current_request(self)

    def delay(self, *args: Any, **kwargs: Any) -> AsyncResult | EagerResult:
        """Enqueue a job with these arguments, in the transaction that is open."""
        return self.apply_async(args, kwargs)

    #: Celery's Django integration sends these after the commit, which stores the job here.
    delay_on_commit = delay

    def apply_async(
        self, args: Arguments = None, kwargs: Keywords = None, **options: Any
    ) -> AsyncResult | EagerResult:
        """Enqueue a job, in the transaction that is open on the jobs' database.

        Options are `countdown`, `eta`, `expires`, `queue`, `priority`, `time_limit`, `task_id` (a
        UUIDv7) and `link`. Raises NoEquivalent for an option that has no equivalent, and the errors
        of `ojs.enqueue`.
        """
        return self.s(*(args or ()), **(kwargs or {})).apply_async(**options)

    apply_async_on_commit = apply_async

    def apply(
        self,
        args: Arguments = None,
        kwargs: Keywords = None,
        throw: bool | None = None,
        task_id: str | None = None,
        retries: int = 0,
        headers: dict[str, Any] | None = None,
        link: Any = None,
        **options: Any,
    ) -> EagerResult:
        """Run the task here and now, with its retries, and return its result.

        Options that say when and where a job runs have no effect.
        """
        from django_ojs.contrib.celery.run_task import apply

        if throw is None:
            throw = bool(configuration.task_eager_propagates)
        request = TaskRequest(
            id=str(task_id or ids.uuid7()),
            task=self.name,
            args=tuple(args or ()),
            kwargs=dict(kwargs or {}),
            retries=retries,
            called_directly=False,
            is_eager=True,
            headers=headers or {},
        )
        result = apply(self, request, throw=throw)
        if result.successful():
            for callback in links_of(link):
                callback.apply_async((result.result,))
        return result

    @property
    def most_retries(self) -> int | None:
        """The larger of `max_retries` and `retry_kwargs["max_retries"]`; None means no limit."""
        if self.max_retries is None:
            return None
        return max(self.max_retries, self.retry_kwargs.get("max_retries") or 0)

    @property
    def retry_delay(self) -> float:
        """The seconds of `default_retry_delay`; None means no delay, as in Celery."""
        return self.default_retry_delay or 0.0

    def s(self, *args: Any, **kwargs: Any) -> Signature:
        """Return a signature with these arguments."""
        return signature(self.name, args, kwargs)

    def si(self, *args: Any, **kwargs: Any) -> Signature:
        """Return a signature that takes no result of the task before it."""
        return signature(self.name, args, kwargs, immutable=True)

    def signature(
        self, args: Arguments = None, kwargs: Keywords = None, **options: Any
    ) -> Signature:
        """Return a signature with these arguments and options."""
        return signature(self.name, args, kwargs, options)

    subtask = signature

    def AsyncResult(self, task_id: str) -> AsyncResult:
        """Return the result of a job of this task."""
        from django_ojs.contrib.celery.result import AsyncResult

        return AsyncResult(task_id)

    def retry(
        self,
        args: Arguments = None,
        kwargs: Keywords = None,
        exc: BaseException | None = None,
        throw: bool = True,
        eta: datetime | None = None,
        countdown: float | None = None,
        max_retries: int | None = None,
        **options: Any,
    ) -> Retry:
        """Run the task again: after `countdown` seconds, at `eta`, or after `default_retry_delay`.

        With no retries left it raises `exc`, or MaxRetriesExceededError. With `throw=False` the run
        continues, and another job is enqueued, which may have other arguments and options. With
        `throw=True` it raises NoEquivalent for other arguments or options, and when the retries
        that the task declares are used up but `max_retries` allows more.
        """
        request = self.request
        cause = exc if exc is not None else sys.exc_info()[1]
        if request.called_directly:
            raise cause or Retry("The task was called as a function, which is not retried.")
        if throw and (options or not self._are_its_own(request, args, kwargs)):
            raise NoEquivalent(
                f"{self.name}: retry() runs a job again with the same arguments and options. "
                "Enqueue another job with apply_async(), and return."
            )
        limit = self.max_retries if max_retries is None else max_retries
        if limit is not None and request.retries >= limit:
            if exc is not None:
                raise exc
            raise MaxRetriesExceededError(f"{self.name} was retried {request.retries} times.")
        declared = self.most_retries
        if throw and declared is not None and request.retries >= declared:
            # The job has no attempt left.
            raise NoEquivalent(
                f"{self.name}: retry(max_retries={limit}) is more than the {declared} retries that "
                f"the task declares. Write @shared_task(max_retries={limit})."
            ) from cause
        delay = self.retry_delay if countdown is None else countdown
        if eta is not None:
            if timezone.is_naive(eta):
                raise NoEquivalent(f"{self.name}: the eta of retry() needs a time zone.")
            delay = (eta - timezone.now()).total_seconds()
        retry = Retry(exc=cause, delay=max(0.0, delay))
        if cause is not None:
            retry.with_traceback(cause.__traceback__)
        if throw:
            raise retry from cause
        self._run_again(request, args, kwargs, {"countdown": max(0.0, delay), **options})
        return retry

    def _run_again(
        self, request: TaskRequest, args: Arguments, kwargs: Keywords, options: dict[str, Any]
    ) -> None:
        given = self.s(
            *(request.args if args is None else args),
            **(request.kwargs if kwargs is None else kwargs),
        )
        retries = request.retries + 1
        if request.is_eager:
            self.apply(given.args, given.kwargs, retries=retries, headers=request.headers)
            return
        sent = {
            "queue": request.delivery_info.get("routing_key"),
            "priority": request.delivery_info.get("priority"),
            "headers": request.headers,
        }
        enqueue_again(given.set(**{**sent, **options}), retries)

    def _are_its_own(self, request: TaskRequest, args: Arguments, kwargs: Keywords) -> bool:
        bind = inspect.signature(self.run).bind
        try:
            given = bind(
                *(request.args if args is None else args),
                **(request.kwargs if kwargs is None else kwargs),
            )
        except TypeError:
            return False
        return given == bind(*request.args, **request.kwargs)

    def update_state(
        self,
        task_id: str | None = None,
        state: str | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        """Report progress: `AsyncResult.state` and `info` show it while the task runs."""
        context = current_context()
        if context is not None:
            context.progress(data={"state": state, "meta": dict(meta or {})})

    def replace(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise NoEquivalent: a job cannot become another job, or several."""
        raise NoEquivalent(
            f"{self.name}: replace(), map(), starmap() and chunks() have no equivalent. Enqueue "
            "the other task, or a group."
        )

    add_to_chord = map = starmap = chunks = replace

    # A subclass may define these methods, which have Celery's names.
    def before_start(self, task_id: str | None, args: Any, kwargs: Any) -> None:
        """Run before each run."""

    def on_success(self, retval: Any, task_id: str | None, args: Any, kwargs: Any) -> None:
        """Run after a run that succeeded."""

    def on_retry(
        self, exc: BaseException | None, task_id: str | None, args: Any, kwargs: Any, einfo: Any
    ) -> None:
        """Run after a run that will be retried."""

    def on_failure(
        self, exc: BaseException, task_id: str | None, args: Any, kwargs: Any, einfo: Any
    ) -> None:
        """Run after a run that raised, and will not be retried."""

    def after_return(
        self, status: str, retval: Any, task_id: str | None, args: Any, kwargs: Any, einfo: Any
    ) -> None:
        """Run after a run that succeeded, failed or will be retried."""


def shared_task(
    *args: Callable[..., Any], base: type[Task] = Task, name: str | None = None, **options: Any
) -> Any:
    """Make a function a task: `@shared_task` or `@shared_task(bind=True, max_retries=5)`.

    Its name, and so the type of its jobs, is its path. Raises NoEquivalent for an option that
    django_ojs does not have.
    """

    def decorate(function: Callable[..., Any]) -> Task:
        path = name or f"{function.__module__}.{function.__qualname__}"
        if inspect.iscoroutinefunction(function):
            raise NoEquivalent(f"{path} is async def, which Celery does not run: use @ojs.job.")
        values = {
            **_checked(path, base, options),
            "name": path,
            "abstract": False,
            "run": function if options.get("bind") else staticmethod(function),
        }
        task: Task = type(function.__name__, (base,), values)()
        functools.update_wrapper(task, function)
        registration.add(task)
        return task

    if len(args) == 1 and callable(args[0]):
        return decorate(args[0])
    if args:
        raise TypeError("@shared_task takes keyword arguments only.")
    return decorate


def _checked(path: str, base: type[Task], options: dict[str, Any]) -> dict[str, Any]:
    for name in options:
        if name not in _WITHOUT_EFFECT and not hasattr(base, name):
            raise NoEquivalent(
                f"{path}: {name} is an option of a task that django_ojs does not know. "
                f"{_INSTEAD.get(name, '')}".rstrip()
            )
    call_options.check_serializer(options.get("serializer", "json"))
    if options.get("rate_limit"):
        call_options.read_rate(options["rate_limit"])
    return options

"""Handlers: functions to which `@job` gives a type, defaults and `enqueue`."""

import inspect
import re
import sys
import typing
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, partialmethod
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    overload,
)

from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured, SynchronousOnlyOperation

from django_ojs import annotations
from django_ojs.async_twins import call_twin
from django_ojs.conf import are_wrong_and_reported, settings
from django_ojs.context import JobContext, current_context
from django_ojs.enqueue_options import (
    NO_OPTIONS,
    OptionArguments,
    Options,
    Request,
    envelope_of,
    push_options_of,
    rate_limit_of,
    read_options,
)
from django_ojs.handler_registry import registry
from django_ojs.operations.enqueue.result import EnqueuedJob
from django_ojs.operations.push import push
from django_ojs.spec import unique_policy
from django_ojs.spec.envelope import DEFAULT_LIMITS, check_type, validate
from django_ojs.spec.errors import InvalidArgs, InvalidJobType, InvalidRequest
from django_ojs.spec.json import JSON
from django_ojs.unique_arguments import UniqueArguments

P = ParamSpec("P")
R = TypeVar("R")

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Enqueuer(Generic[P]):
    """A handler and the options for its next job."""

    def __init__(self, handler: "Handler[P, Any]", options: Options) -> None:
        self._handler = handler
        self._options = options

    def request(self, *args: P.args, **kwargs: P.kwargs) -> Request:
        """Describe a job for `ojs.enqueue_batch`, or a step of a workflow.

        Raises InvalidArgs when the arguments do not match the handler's parameters.
        """
        return Request(
            type=self._handler.type, args=self._handler.bind(args, kwargs), options=self._options
        )

    #: Describe a step of a workflow, such as `ojs.chain(charge.s(order.pk), ship.s(order.pk))`.
    s = request

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> EnqueuedJob:
        """Store a job for this handler, in the current transaction; see `ojs.enqueue`."""
        item = self.request(*args, **kwargs)
        try:
            return push(envelope_of(item), push_options_of(item))
        except SynchronousOnlyOperation:
            raise call_twin("enqueue") from None

    def enqueue_after_commit(self, *args: P.args, **kwargs: P.kwargs) -> EnqueuedJob:
        """Store a job that runs once the current transaction has committed.

        See `ojs.enqueue_after_commit`.
        """
        return self.enqueue(*args, **kwargs)

    if not TYPE_CHECKING:  # A type checker would otherwise accept every name.

        def __getattr__(self, name: str) -> Any:
            from django_ojs.spec.other_queues import no_attribute  # which only an error needs

            raise no_attribute(name, "handler", "A handler")

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> EnqueuedJob:
        """Store a job for this handler; see `enqueue`."""
        return await sync_to_async(self.enqueue)(*args, **kwargs)


class Handler(Enqueuer[P], Generic[P, R]):
    """A function that runs jobs of one type. Calling it calls the function directly."""

    takes_context: bool
    #: Whether a failed run keeps the importable path of its exception's class.
    keeps_exception_class: bool = False

    def __init__(
        self, function: Callable[..., R], type: str, *, atomic: bool, options: Options
    ) -> None:
        self.function = function
        self.type = type
        self.atomic = atomic
        self.is_async = inspect.iscoroutinefunction(function)
        self._signature = self.read_signature()
        self._rest = _rest_of(function)
        self._minimum, self._maximum = _arity(self._signature)
        self.unique_arguments = UniqueArguments(type, self._signature)
        self.defaults = self._with_positions(options)
        self.__name__ = getattr(function, "__name__", type)
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__
        self.__wrapped__ = function
        super().__init__(self, NO_OPTIONS)
        if atomic and self.is_async:
            raise ImproperlyConfigured(
                f"The handler of {type!r} is async def and atomic=True: a transaction belongs to "
                "one thread. Make it a plain def."
            )

    def read_signature(self) -> inspect.Signature:
        """Read from the function how it takes the arguments of a job. `__init__` calls this."""
        _check_context(self.function, self.type)
        self.takes_context = _takes_context(self.function)
        return _signature_of_args(self.function, self.takes_context, self.type)

    def __repr__(self) -> str:
        return f"<Handler {self.type}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function. If it takes a JobContext, it gets the one of the running job."""
        if not self.takes_context:
            return self.function(*args, **kwargs)
        context = current_context()
        if context is None:
            raise TypeError(
                f"{self.type} takes a JobContext: outside a job, call .function(context, …)."
            )
        return self.function(context, *args, **kwargs)

    def options(self, **options: Unpack[OptionArguments]) -> Enqueuer[P]:
        """Set options for the next job: `handler.options(priority=ojs.HIGH).enqueue(…)`."""
        return Enqueuer(self, self._with_positions(read_options(options)))

    def _with_positions(self, options: Options) -> Options:
        if options.rate_limit is not None:
            rate_limit_of(options.rate_limit).check_parameters(self.parameters)
        if options.unique is None:
            return options
        policy = unique_policy.parse_python(options.unique)
        self.unique_arguments.check(policy)
        return replace(options, unique=self.unique_arguments.at(policy))

    def run(self, context: JobContext) -> Any:
        """Call the function with the job's arguments.

        Return its result, or the awaitable of an `async def`.
        """
        args = context.args
        return self.function(context, *args) if self.takes_context else self.function(*args)

    @property
    def place(self) -> str:
        """Where the function is, as a traceback names it: "shop/jobs.py:12 in build_report"."""
        function = inspect.unwrap(self.function)
        name = getattr(function, "__qualname__", self.type)
        code = getattr(function, "__code__", None)
        return name if code is None else f"{code.co_filename}:{code.co_firstlineno} in {name}"

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The parameters that take the arguments of a job, by name."""
        return self._signature.parameters

    def arguments_by_name(self, args: Sequence[JSON]) -> dict[str, Any]:
        """Return the arguments of a job by the names of their parameters, with the defaults."""
        defaults = {
            name: parameter.default
            for name, parameter in self.parameters.items()
            if parameter.default is not inspect.Parameter.empty
        }
        return {**defaults, **dict(zip(self.parameters, args, strict=False))}

    def split_keywords(self, args: list[JSON]) -> tuple[list[JSON], dict[str, JSON] | None]:
        """Return the arguments of a job, and those for keywords if the handler has any."""
        return args, None

    def keyword_parameter(self, name: str) -> inspect.Parameter | None:
        """Return the parameter that takes a keyword, unless it takes an argument of a job."""
        return None

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[JSON]:
        """Return the positional arguments of a job.

        Keyword arguments become positional by the signature.

        Raises InvalidArgs when they do not match: the caller gets the error, not the worker.
        """
        if not kwargs and self._minimum <= len(args) <= self._maximum:
            return list(args)
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidArgs(
                f"The arguments do not fit {self.type}{self._signature}: {error}.",
                details={"field": "args"},
            ) from None
        if kwargs:
            self._fill_gaps(bound.arguments)
        return list(bound.args)

    def _fill_gaps(self, given: dict[str, Any]) -> None:
        # Only parameters before a given argument need their defaults now; the worker applies the
        # others.
        last = next(name for name in reversed(self._signature.parameters) if name in given)
        for name, parameter in self._signature.parameters.items():
            if name == last:
                return
            given.setdefault(name, parameter.default)


class Decorator(Protocol):
    """The type of `@job(…)`, which makes a Handler of a function.

    The type checker keeps the function's signature.
    """

    @overload
    def __call__(
        self, function: Callable[Concatenate[JobContext, P], Awaitable[R]], /
    ) -> "Handler[P, Awaitable[R]]": ...

    @overload
    def __call__(self, function: Callable[Concatenate[JobContext, P], R], /) -> "Handler[P, R]": ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> "Handler[P, R]": ...


def job(type: str, /, *, atomic: bool = False, **options: Unpack[OptionArguments]) -> Decorator:
    """Make a function the handler of a job type: `@ojs.job("email.send", queue="email")`.

    The options are the defaults of every job of this type; `atomic=True` commits the handler's
    database effects and the completion of the job in one transaction, so that they happen exactly
    once. Raises an OJSError for a type or option that breaks a rule, and ImproperlyConfigured when
    the type has another handler or the function cannot take positional arguments.
    """
    if callable(type):
        raise InvalidJobType.of(
            "type", "must be a non-empty string", hint='Write @ojs.job("app.action").'
        )
    check_type(type, DEFAULT_LIMITS if are_wrong_and_reported() else settings().limits)
    defaults = read_options(options)
    check_defaults(type, defaults)

    def decorate(function: Callable[..., Any]) -> Handler[..., Any]:
        _check_function(function, type)
        _check_result(function, type)
        handler: Handler[..., Any] = Handler(function, type, atomic=atomic, options=defaults)
        registry.add(handler)
        return handler

    return typing.cast("Decorator", decorate)


def check_defaults(type: str, defaults: Options) -> None:
    """Check the options of a type when it is declared, not at its first enqueue."""
    if defaults.id is not None:
        raise InvalidRequest.of("id", "must be set for each job, not for its type.")
    if are_wrong_and_reported():
        return  # Django's check of the URLs imports handlers before the settings are reported.
    wanted = Request(type=type, args=(), options=defaults)
    validate(envelope_of(wanted, has_arguments=False), settings().limits)
    push_options_of(wanted)


def get_handler(type: str) -> Handler[..., Any] | None:
    """Return the handler of a job type, or None."""
    return registry.handlers.get(type)


def job_types() -> list[str]:
    """Return the job types that have a handler here, sorted."""
    return sorted(registry.handlers)


def positions(parameter: str) -> Iterator[tuple[str, range]]:
    """Yield the types whose handler has a parameter of this name, with its places in the args.

    The case of the name does not matter, as it does not in what the settings hide.
    """
    for handler in registry.handlers.values():
        for name, indexes in _places(handler):
            if name.casefold() == parameter.casefold():
                yield handler.type, indexes


def parameters_of(type: str, args: Any) -> list[str]:
    """Return the name of the parameter that takes each argument of a job, in their order."""
    handler = get_handler(type)
    if handler is None or not isinstance(args, list):
        return []
    names, rest = list(handler.parameters), handler._rest
    if rest is None:
        return names
    # `*args` come last, or before the object of keywords.
    given, keywords = handler.split_keywords(args)
    further = [rest] * (len(given) - len(names) + 1)
    return [*names[:-1], *further, *([] if keywords is None else names[-1:])]


def parameter_names() -> list[str]:
    """Return the names of the parameters of all handlers, sorted."""
    return sorted({name for handler in registry.handlers.values() for name in handler.parameters})


def _check_function(function: Callable[..., Any], type: str) -> None:
    # In some versions of Python, isroutine() accepts partials and other callables as well.
    is_partial = isinstance(function, partial | partialmethod)
    if is_partial or not inspect.isroutine(function) or not hasattr(function, "__qualname__"):
        hint = " Call the function from one that you define by def." if is_partial else ""
        raise ImproperlyConfigured(f"The handler of {type!r} must be a function.{hint}")
    first = next(iter(annotations.signature(function).parameters), None)
    owner = getattr(function, "__self__", None)
    bound = inspect.ismethod(function) and not inspect.isclass(owner)
    scope = function.__qualname__.rpartition(".")[0]
    in_class = bool(scope) and not scope.endswith("<locals>")
    if bound or (in_class and first == "self"):
        raise ImproperlyConfigured(
            f"The handler of {type!r} is the method {function.__qualname__}: a worker has no "
            "object to call it on. Use a function, and pass a primary key as its argument."
        )


def _check_result(function: Callable[..., Any], type: str) -> None:
    """Reject a function whose runs would all fail, whatever it does."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ImproperlyConfigured(
            f"The handler of {type!r} is a generator: a call of it runs nothing. Use no yield."
        )
    # A handler with a context may replace what it returns by `set_result`.
    if not _takes_context(function) and (found := annotations.result_that_is_not_json(function)):
        raise ImproperlyConfigured(
            f"The handler of {type!r} is annotated to return {found}, which is not JSON and cannot "
            "be stored: each run would fail after its effects. Return a string, a number, a "
            "boolean, a list, a dict or None."
        )


def _check_context(function: Callable[..., Any], type: str) -> None:
    takes_context = _takes_context(function)
    parameters = list(annotations.signature(function).parameters.values())
    for index, parameter in enumerate(parameters[1 if takes_context else 0 :]):
        annotation = annotations.text_of(parameter.annotation)
        if not re.search(r"\bJobContext\b", annotation):
            continue
        if index or takes_context:
            rule = "must be the first parameter"
        else:
            rule = "must be annotated with JobContext alone; it is never None"
        raise ImproperlyConfigured(
            f"The handler of {type!r} takes a JobContext as {parameter.name!r}, which {rule}."
        )


def _takes_context(function: Callable[..., Any]) -> bool:
    parameters = list(annotations.signature(function).parameters.values())
    if not parameters:
        return False
    annotation = parameters[0].annotation
    return annotation is JobContext or annotations.last_name(annotation) == "JobContext"


def _signature_of_args(
    function: Callable[..., Any], takes_context: bool, type: str
) -> inspect.Signature:
    signature = annotations.signature(function)
    parameters = list(signature.parameters.values())[1 if takes_context else 0 :]
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.VAR_KEYWORD or (
            parameter.kind is inspect.Parameter.KEYWORD_ONLY
            and parameter.default is inspect.Parameter.empty
        ):
            raise ImproperlyConfigured(
                f"The handler of {type!r} has the keyword-only parameter {parameter.name!r}; "
                "the arguments of a job are positional."
            )
    return signature.replace(
        parameters=[p for p in parameters if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    )


def _places(handler: Handler[..., Any]) -> Iterator[tuple[str, range]]:
    """Yield the parameters of a handler, each with the indexes that it may have in the args."""
    rest, last = handler._rest, len(handler.parameters) - 1
    for index, name in enumerate(handler.parameters):
        end = index + 1 if rest is None or index < last else sys.maxsize
        yield name, range(index, end)
    if rest is not None and rest not in handler.parameters:
        yield rest, range(last, sys.maxsize)


def _rest_of(function: Callable[..., Any]) -> str | None:
    """Return the name of `*args`, which takes all further arguments of a job, or None."""
    parameters = annotations.signature(function).parameters
    kind = inspect.Parameter.VAR_POSITIONAL
    return next((name for name, each in parameters.items() if each.kind is kind), None)


def _arity(signature: inspect.Signature) -> tuple[int, float]:
    positional = [p for p in signature.parameters.values() if p.kind in _POSITIONAL]
    minimum = sum(p.default is inspect.Parameter.empty for p in positional)
    unbounded = any(
        p.kind is inspect.Parameter.VAR_POSITIONAL for p in signature.parameters.values()
    )
    return minimum, float("inf") if unbounded else len(positional)

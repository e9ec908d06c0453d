"""The chains of enqueue and of execution middleware (ojs-middleware).

They are read from the settings, and may be rearranged at start-up.

`OJS = {"ENQUEUE_MIDDLEWARE": ["path.to.Class", …], "EXECUTION_MIDDLEWARE": […]}`. An entry is a
class that is instantiated without arguments, or a callable that is used as it is. A middleware is
identified by its dotted path, its class, or the object itself.
"""

import inspect
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from django_ojs.conf import settings
from django_ojs.spec.envelope import Envelope

EnqueueNext = Callable[[Envelope], Envelope | None]


class EnqueueMiddleware(Protocol):
    """Pass the envelope on, drop it, or reject it (ojs-middleware §3).

    A middleware may change it before it passes it on. Returning None drops it; raising rejects it.
    """

    def __call__(self, envelope: Envelope, proceed: EnqueueNext, /) -> Envelope | None:
        """Return `proceed(envelope)` to pass it on."""
        ...


class ExecutionMiddleware(Protocol):
    """Wrap the run of a handler (ojs-middleware §4). The first in the list is the outermost.

    For an `async def` handler `proceed()` returns an awaitable; a middleware that is a coroutine
    function is awaited, and a plain one must return the awaitable it got: the run fails if nothing
    awaits it.
    """

    def __call__(self, context: Any, proceed: Callable[[], Any], /) -> Any:
        """Return the handler's result, usually `proceed()`."""
        ...


M = TypeVar("M")


class Chain(Generic[M]):
    """An ordered list of middleware, frozen by its first use: changing it then is an error."""

    def __init__(self, setting: str, paths: tuple[str, ...] = ()) -> None:
        self._setting = setting
        self._frozen = False
        self._entries: list[tuple[str, M]] = [(path, self._load(path)) for path in paths]

    def _load(self, path: str) -> M:
        try:
            found = import_string(path)
        except ImportError as error:
            raise ImproperlyConfigured(
                f"OJS[{self._setting!r}] names {path!r}, which cannot be imported."
            ) from error
        return self._instance(found, path)

    def _instance(self, found: Any, name: str) -> M:
        try:
            made: Any = found() if inspect.isclass(found) else found
        except TypeError as error:
            raise ImproperlyConfigured(
                f"The middleware {name!r} must be made without arguments."
            ) from error
        if not callable(made):
            raise ImproperlyConfigured(f"The middleware {name!r} must be callable.")
        return cast("M", made)  # The type of what a setting names cannot be checked further.

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[M]:
        return (middleware for _, middleware in self._entries)

    @property
    def names(self) -> list[str]:
        """The dotted paths, in the order in which the middleware run."""
        return [name for name, _ in self._entries]

    def add(self, middleware: Any) -> None:
        """Append a middleware: a dotted path, a class or a callable."""
        self._insert(len(self._entries), middleware)

    def prepend(self, middleware: Any) -> None:
        """Insert a middleware at the beginning."""
        self._insert(0, middleware)

    def insert_before(self, existing: Any, middleware: Any) -> None:
        """Insert a middleware directly before an existing one.

        Raises LookupError when that is not in the chain.
        """
        self._insert(self._index(existing), middleware)

    def insert_after(self, existing: Any, middleware: Any) -> None:
        """Insert a middleware directly after an existing one.

        Raises LookupError when that is not in the chain.
        """
        self._insert(self._index(existing) + 1, middleware)

    def remove(self, existing: Any) -> None:
        """Remove a middleware. Raises LookupError when it is not in the chain."""
        self._check_not_frozen()
        del self._entries[self._index(existing)]

    def freeze(self) -> None:
        """Reject further changes: the chain is in use (ojs-middleware §5.3)."""
        self._frozen = True

    def _insert(self, index: int, middleware: Any) -> None:
        self._check_not_frozen()
        if isinstance(middleware, str):
            entry = (middleware, self._load(middleware))
        else:
            name = _path(middleware if hasattr(middleware, "__qualname__") else type(middleware))
            entry = (name, self._instance(middleware, name))
        self._entries.insert(index, entry)

    def _check_not_frozen(self) -> None:
        if self._frozen:
            raise RuntimeError(
                "The middleware chain is in use and cannot be changed; "
                "arrange it in AppConfig.ready()."
            )

    def _index(self, existing: Any) -> int:
        for index, (name, middleware) in enumerate(self._entries):
            if existing in (name, middleware) or (
                inspect.isclass(existing) and type(middleware) is existing
            ):
                return index
        raise LookupError(f"{existing!r} is not in the middleware chain; it holds {self.names}.")


def _path(found: Any) -> str:
    return f"{found.__module__}.{found.__qualname__}"


class EnqueueChain(Chain[EnqueueMiddleware]):
    """The middleware that every job passes before it is stored."""

    def _instance(self, found: Any, name: str) -> EnqueueMiddleware:
        made = super()._instance(found, name)
        if any(inspect.iscoroutinefunction(way) for way in (made, type(made).__call__)):
            raise ImproperlyConfigured(f"The enqueue middleware {name!r} must not be async def.")
        return made

    def run(self, envelope: Envelope) -> Envelope | None:
        """Return the envelope at the end of the chain, or None when a middleware dropped it."""
        self.freeze()
        outcome: list[Envelope | None] = [None]

        def call(index: int, current: Envelope) -> Envelope | None:
            if not isinstance(current, Envelope):
                raise TypeError(
                    f"The middleware {self.names[index - 1]!r} must pass on an Envelope."
                )
            if index == len(self._entries):
                outcome[0] = current
                return current
            proceed = _Once(lambda following: call(index + 1, following))
            returned = self._entries[index][1](current, proceed)
            # Returning the envelope passes it on as well (ojs-middleware §3.3).
            return returned if returned is None or proceed.called else call(index + 1, returned)

        # The envelope that reached the end is stored, unless a middleware has called `proceed` and
        # returned nothing: that drops the job.
        return outcome[0] if call(0, envelope) is not None else None


class ExecutionChain(Chain[ExecutionMiddleware]):
    """The middleware that wraps every run of a handler."""

    def run(self, context: Any, handler: Callable[[Any], Any]) -> Any:
        """Call a handler with its context, inside the chain, and return its result.

        The result of an `async def` handler is an awaitable.
        """
        self.freeze()
        if not self._entries:
            result = handler(context)
        elif context.is_async:
            result = self._wrapped_async(context, handler)
        else:
            result = self._wrapped(context, handler, _Once)
        if inspect.iscoroutine(result) and not context.is_async:
            result.close()
            if not self._entries:
                raise TypeError(
                    "The handler returned a coroutine and is not async def itself: declare it with "
                    "async def, or return what the coroutine returns."
                )
            raise TypeError("An async def execution middleware wraps async def handlers only.")
        return result

    def _wrapped(
        self,
        context: Any,
        handler: Callable[[Any], Any],
        once: "Callable[[Callable[[], Any], str], _Once]",
    ) -> Any:
        def call(index: int) -> Any:
            if index == len(self._entries):
                return handler(context)
            name, middleware = self._entries[index]
            return middleware(context, once(lambda: call(index + 1), name))

        return call(0)

    def _wrapped_async(self, context: Any, handler: Callable[[Any], Any]) -> Any:
        calls: list[_OnceAsync] = []

        def once(proceed: Callable[[], Any], name: str) -> _OnceAsync:
            calls.append(_OnceAsync(proceed, name))
            return calls[-1]

        try:
            returned = self._wrapped(context, handler, once)
        except BaseException:
            _close_not_started(calls)
            raise
        if inspect.isawaitable(returned):
            return _awaited(returned, calls)
        _check_started(calls)
        return returned


class _Once:
    """`proceed` for a middleware. A second call raises: a job is stored once, and runs once."""

    def __init__(self, proceed: Callable[..., Any], name: str = "") -> None:
        self.called = False
        self.name = name
        self._proceed = proceed

    def __call__(self, *passed: Any) -> Any:
        if self.called:
            raise RuntimeError("A middleware called proceed() twice.")
        self.called = True
        return self._proceed(*passed)


class _OnceAsync(_Once):
    """`proceed` around an `async def` handler. It knows whether its coroutine was awaited."""

    _returned: Any = None

    def __call__(self, *passed: Any) -> Any:
        self._returned = super().__call__(*passed)
        return self._returned

    def close_not_started(self) -> bool:
        """Close the returned coroutine if nothing has awaited it. Return whether this was done.

        A coroutine that a middleware has closed is left out: the middleware did not want it.
        """
        found = self._returned
        if not inspect.iscoroutine(found) or inspect.getcoroutinestate(found) != _NOT_STARTED:
            return False
        found.close()
        return True


_NOT_STARTED: Final = inspect.CORO_CREATED


def _close_not_started(calls: list[_OnceAsync]) -> list[str]:
    """Close the coroutines that nothing has awaited; return the names of their middleware."""
    return [call.name for call in calls if call.close_not_started()]


def _check_started(calls: list[_OnceAsync]) -> None:
    """Raise for a coroutine that nothing has awaited: the handler has not run."""
    if names := _close_not_started(calls):
        # The outermost one is named: an inner middleware may have passed on the same coroutine.
        raise RuntimeError(
            f"The execution middleware {names[0]!r} called proceed() and dropped what it returned, "
            "so the async def handler has not run: return proceed(), or await it in an async def."
        )


async def _awaited(returned: Any, calls: list[_OnceAsync]) -> Any:
    try:
        result = await returned
    except BaseException:
        _close_not_started(calls)
        raise
    _check_started(calls)
    return result


@cache
def enqueue_chain() -> EnqueueChain:
    """Return the chain that every job passes before it is stored."""
    return EnqueueChain("ENQUEUE_MIDDLEWARE", settings().enqueue_middleware)


@cache
def frozen_enqueue_chain() -> EnqueueChain | None:
    """Return the chain for use, frozen, or None if it is empty. Every enqueue asks for it."""
    chain = enqueue_chain()
    chain.freeze()
    return chain if len(chain) else None


@cache
def execution_chain() -> ExecutionChain:
    """Return the chain that wraps every handler in this process."""
    return ExecutionChain("EXECUTION_MIDDLEWARE", settings().execution_middleware)


def _forget(*, setting: str, **kwargs: object) -> None:
    if setting == "OJS":
        enqueue_chain.cache_clear()
        frozen_enqueue_chain.cache_clear()
        execution_chain.cache_clear()


setting_changed.connect(_forget, dispatch_uid="django_ojs.middleware")

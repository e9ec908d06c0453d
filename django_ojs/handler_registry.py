"""The handlers of this process, by job type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from django.core.exceptions import ImproperlyConfigured


class RegisteredHandler(Protocol):
    """The part of `handlers.Handler` that the registry reads. That module imports this one."""

    type: str

    @property
    def function(self) -> Callable[..., Any]: ...


class HandlerRegistry:
    """Handlers, each the only one of its type."""

    def __init__(self) -> None:
        # The values are `handlers.Handler`.
        self.handlers: dict[str, Any] = {}

    def add(self, handler: RegisteredHandler) -> None:
        """Add a handler; the same function may be added again, as a reload does.

        Raises ImproperlyConfigured when its type has another one.
        """
        known = self.handlers.get(handler.type)
        if known is not None and _name(known.function) != _name(handler.function):
            raise ImproperlyConfigured(
                f"The job type {handler.type!r} has two handlers: {_name(known.function)} and "
                f"{_name(handler.function)}."
            )
        self.handlers[handler.type] = handler

    def remove(self, type: str) -> None:
        self.handlers.pop(type, None)


registry: Final = HandlerRegistry()


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"

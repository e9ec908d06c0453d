"""The handlers of this process, by job type."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from django.core.exceptions import ImproperlyConfigured

if TYPE_CHECKING:
    from django_ojs.handlers import Handler


class HandlerRegistry:
    """Handlers, each the only one of its type."""

    def __init__(self) -> None:
        self.handlers: dict[str, Handler[..., Any]] = {}

    def add(self, handler: Handler[..., Any]) -> None:
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
        """Remove the handler of a type, if there is one."""
        self.handlers.pop(type, None)

    def reset(self) -> None:
        """Remove all handlers."""
        self.handlers.clear()


registry: Final = HandlerRegistry()


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"

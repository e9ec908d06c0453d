"""What the execute wrappers of this package share."""

import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

from django.db.backends.base.base import BaseDatabaseWrapper

_CHANGE: Final = re.compile(
    r"\s*(?:(?:(?:INSERT|REPLACE)\s+(?:IGNORE\s+)?INTO|DELETE\s+(?:j\s+)?FROM|UPDATE)\s+`?ojs_"
    r"|UPDATE\s+\(.*JOIN\s+ojs_)",
    re.DOTALL,
)


W = TypeVar("W", bound=Callable[..., Any])


def for_others(wrapper: W) -> W:
    """Decorate a wrapper that need not see each statement of django_ojs, but those of the project.

    Where a connection has no other wrappers, an enqueue need not take Django's cursor.
    """
    wrapper.is_for_others = True  # type: ignore[attr-defined]  # read by `are_for_others`
    return wrapper


def are_for_others(wrappers: list[Callable[..., Any]]) -> bool:
    """Whether all of these wrappers are `for_others`."""
    return all(getattr(wrapper, "is_for_others", False) for wrapper in wrappers)


def install(connection: BaseDatabaseWrapper, wrapper: Callable[..., Any]) -> None:
    """Let all statements of a connection go through a wrapper, if it is one to such a server."""
    # The first wrapper is the outermost. Code that adds one for a while removes the last one.
    if connection.vendor == "mysql" and wrapper not in connection.execute_wrappers:
        connection.execute_wrappers.insert(0, wrapper)


def is_change(sql: str) -> bool:
    """Whether a statement changes a table of django_ojs."""
    return bool(_CHANGE.match(sql))

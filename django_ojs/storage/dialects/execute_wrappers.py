"""What the execute wrappers of this package share."""

from collections.abc import Callable
from typing import Any, TypeVar

W = TypeVar("W", bound=Callable[..., Any])


def for_others(wrapper: W) -> W:
    """Decorate a wrapper that must see the project's statements, but may miss some of django_ojs.

    Where a connection has no other wrappers, an enqueue need not take Django's cursor.
    """
    wrapper.is_for_others = True  # type: ignore[attr-defined]  # read by `are_for_others`
    return wrapper


def are_for_others(wrappers: list[Callable[..., Any]]) -> bool:
    """Whether all of these wrappers are `for_others`."""
    return all(getattr(wrapper, "is_for_others", False) for wrapper in wrappers)

"""Functions with a twin for `async` code. In such code, they raise an error that names the twin."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from django.core.exceptions import SynchronousOnlyOperation

P = ParamSpec("P")
R = TypeVar("R")


def call_twin(name: str) -> SynchronousOnlyOperation:
    """Return the error that names the function to call in `async` code."""
    return SynchronousOnlyOperation(
        f"{name}() cannot be called from async code: write `await a{name}(...)`. It takes the same "
        "arguments."
    )


def has_twin(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function that has a twin whose name begins with `a`."""

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except SynchronousOnlyOperation:
            raise call_twin(function.__name__) from None

    return wrapper

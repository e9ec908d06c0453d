"""Figures of all databases together, where jobs are in several.

A page or a response that shows figures asks for them by `together`; everything else works on one
database, and so do these functions then.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import partial, reduce, wraps
from typing import Any, Final, ParamSpec, TypeVar

from django.db import Error

from django_ojs.storage import database, find_database

P = ParamSpec("P")
T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

#: The databases that did not respond, while figures are those of all; None otherwise.
_missing: Final[ContextVar["Missing | None"]] = ContextVar("django_ojs_sums", default=None)


class Missing(dict[str, Error]):
    """The databases that are not in figures because they do not respond, and their errors.

    `is_error`: there may be none; the first one is raised.
    """

    def __init__(self, *, is_error: bool) -> None:
        self.is_error = is_error


@contextmanager
def together(*, all_or_error: bool = False) -> Iterator[Missing]:
    """Let figures be those of all databases, until the block ends.

    Yield which are missing. With `all_or_error` the error of one that does not respond is raised:
    for programs, sums without it would look like a change.
    """
    missing = Missing(is_error=all_or_error)
    with database.having(_missing, missing):
        yield missing


def apart() -> AbstractContextManager[None]:
    """Let figures be those of one database, as the rows beside them are, until the block ends."""
    return database.having(_missing, None)


def are_together() -> bool:
    """Whether figures are those of several databases."""
    return _missing.get() is not None and database.is_to_be_chosen()


def summed(add: Callable[[T, T], T]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function that reads figures: within `together` they are those of all databases.

    `add` returns the figures of two of them as one. Raises the error of a database if none
    responds.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
            missing = _missing.get()
            if missing is None or not database.is_to_be_chosen():
                return function(*args, **kwargs)
            found: list[T] = []
            failed: Error | None = None
            results = find_database.each_result(partial(function, *args, **kwargs))
            for alias, result in results.items():
                if isinstance(result, Error):
                    missing[alias] = failed = result
                else:
                    found.append(result)
            if failed is not None and (missing.is_error or not found):
                raise failed
            return reduce(add, found)

        return wrapper

    return decorate


def numbers(one: Mapping[K, int], other: Mapping[K, int]) -> dict[K, int]:
    """Return the sums by name."""
    return by_name(int.__add__)(one, other)


def by_name(add: Callable[[V, V], V]) -> Callable[[Mapping[K, V], Mapping[K, V]], dict[K, V]]:
    """Return a function that joins two mappings, and the values of the names that are in both."""

    def joined(one: Mapping[K, V], other: Mapping[K, V]) -> dict[K, V]:
        both = {name: add(one[name], other[name]) for name in one.keys() & other.keys()}
        return {**one, **other, **both}

    return joined


def lists(one: list[Any], other: list[Any]) -> list[Any]:
    """Return the sums of two lists, place by place."""
    return [a + b for a, b in zip(one, other, strict=True)]

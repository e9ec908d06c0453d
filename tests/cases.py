"""Several cases in one test, where the scene costs more than what each of them does in it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from django.db import transaction

from django_ojs.extensions.backpressure import storage as bounds
from django_ojs.hooks import registry
from django_ojs.storage import in_memory_state, queue_configs
from tests.plugins.measuring import unmeasured


def begin_as_a_new_process() -> None:
    """Forget what a process remembers, except that it knows, without a query, of no configuration.

    What a test configures is read from the database, as always.
    """
    in_memory_state.reset()
    registry.failures.clear()
    queue_configs.remember({}, seconds=3_600)
    bounds.configured.queues = {}


@contextmanager
def named(name: str) -> Iterator[None]:
    """Let an error in the block name its case. What the block stores stays."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case {name}")
        raise


@contextmanager
def case(name: str) -> Iterator[None]:
    """Undo in the database what the block does. An error in the block names the case."""
    begin_as_a_new_process()
    with named(name), transaction.atomic():
        yield
        transaction.set_rollback(True)
    begin_as_a_new_process()


def together(
    names: str | Sequence[str], values: Iterable[Any], *, ids: Any = None, undo: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call a test with each of the values, as `pytest.mark.parametrize` does, but in one test.

    For cases that are faster than the set-up of a test: all of them share its fixtures. An error
    names its case. `undo`: what a case stores is undone before the next one.
    """
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]
    rows = [_row(value, len(keys)) for value in values]
    labels = [ids(row[0]) for row in rows] if callable(ids) else ids or [str(row) for row in rows]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        # What a call of these returns would have to be run.
        assert not inspect.iscoroutinefunction(test), test
        assert not inspect.isgeneratorfunction(test), test

        @functools.wraps(test)
        def each(*arguments: Any, **fixtures: Any) -> None:
            assert rows, "no cases"
            for number, (label, row) in enumerate(zip(labels, rows, strict=True)):
                with unmeasured(number), (case if undo else named)(str(label)[:200]):
                    try:
                        test(*arguments, **fixtures, **dict(zip(keys, row, strict=True)))
                    except pytest.skip.Exception as skipped:
                        raise AssertionError("a skip would leave out the other cases") from skipped

        signature = inspect.signature(test)
        others = [each for name, each in signature.parameters.items() if name not in keys]
        each.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return each

    return decorate


def _row(value: Any, length: int) -> Sequence[Any]:
    if isinstance(value, ParameterSet):
        assert not value.marks, "the cases of one test have its marks"
        return value.values
    return value if length > 1 else [value]

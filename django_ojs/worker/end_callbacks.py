"""Functions that run at the end of a worker process, which exits without Python's exit handlers."""

import logging
from collections.abc import Callable

logger = logging.getLogger("django_ojs")

_functions: list[Callable[[], object]] = []


def register(function: Callable[[], object]) -> None:
    """Call a function at the end of each worker process of this supervisor."""
    if function not in _functions:
        _functions.append(function)


def unregister(function: Callable[[], object]) -> None:
    """Undo `register`."""
    if function in _functions:
        _functions.remove(function)


def run() -> None:
    """Call the functions. Their errors are logged."""
    for function in _functions:
        try:
            function()
        except Exception:
            logger.exception("A function at the end of a worker process failed.")

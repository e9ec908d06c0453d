"""Receivers of signals, for as long as a block runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.dispatch import Signal


@contextmanager
def receiving(receiver: Callable[..., Any], *signals: Signal) -> Iterator[None]:
    """Connect a receiver to signals while the block runs."""
    for signal in signals:
        signal.connect(receiver, weak=False)
    try:
        yield
    finally:
        for signal in signals:
            signal.disconnect(receiver)

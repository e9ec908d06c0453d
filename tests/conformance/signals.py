"""Receive the signals of jobs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from django.dispatch import Signal

from django_ojs import signals
from django_ojs.models import Job

NAMES = sorted(name for name in vars(signals) if name.startswith("job_"))


@contextmanager
def received() -> Iterator[list[tuple[str, Any]]]:
    """Collect the name and the job of each signal that is sent."""
    found: list[tuple[str, Any]] = []

    def note(name: str, *, job: Any, **kwargs: object) -> None:
        found.append((name, job))

    with ExitStack() as stack:
        for name in NAMES:
            signal: Signal = getattr(signals, name)
            receiver = partial(note, name)
            signal.connect(receiver, sender=Job, weak=False)
            stack.callback(signal.disconnect, receiver, sender=Job)
        yield found

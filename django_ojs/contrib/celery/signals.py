"""The signals of Celery that are about the run of a task. They are sent in its thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from django import dispatch

R = TypeVar("R", bound=Callable[..., Any])


class Signal:
    """A signal with Celery's `connect`, which is a decorator too. A receiver cannot fail a run."""

    def __init__(self) -> None:
        self._signal = dispatch.Signal()

    def connect(self, receiver: R | None = None, *, retry: bool = False, **options: Any) -> Any:
        """Call a receiver; options are `sender`, which is a task, `weak` and `dispatch_uid`.

        `retry`, for a receiver that Celery would call again when it raises, has no effect.
        """
        if receiver is None:
            return lambda decorated: self.connect(decorated, **options)
        self._signal.connect(receiver, **options)
        return receiver

    def disconnect(self, receiver: Callable[..., Any] | None = None, **options: Any) -> bool:
        """Undo `connect`, and return whether the receiver was connected."""
        return self._signal.disconnect(receiver, **options)

    def send(self, sender: object, **values: Any) -> None:
        """Call the receivers. Their errors are logged."""
        self._signal.send_robust(sender, **values)


task_prerun = Signal()
task_postrun = Signal()
task_success = Signal()
task_retry = Signal()
task_failure = Signal()


def __getattr__(name: str) -> NoReturn:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise ImportError(
        f"celery.signals.{name} has no equivalent in django_ojs.contrib.celery: use "
        "django_ojs.signals, or the settings of the worker.",
        name=name,
    )

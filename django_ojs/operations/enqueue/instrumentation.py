"""Lets instrumentation, such as `contrib.opentelemetry`, wrap each enqueue."""

from collections.abc import Callable, Sequence

from django_ojs.operations.enqueue.result import EnqueuedJob
from django_ojs.spec.envelope import Envelope

#: Gets the envelopes, which it may change, and what stores them. It returns the result of that.
Wrapper = Callable[[Sequence[Envelope], Callable[[], list[EnqueuedJob]]], list[EnqueuedJob]]

_wrapper: Wrapper | None = None


def install(wrapper: Wrapper | None) -> None:
    """Wrap each enqueue from now on; None: none."""
    global _wrapper
    _wrapper = wrapper


def current() -> Wrapper | None:
    """Return what wraps each enqueue, or None."""
    return _wrapper

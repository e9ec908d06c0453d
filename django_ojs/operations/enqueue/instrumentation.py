"""Lets instrumentation, such as `contrib.opentelemetry`, wrap each enqueue, and mark workflows."""

from collections.abc import Callable, Mapping, Sequence

from django_ojs.operations.enqueue.result import EnqueuedJob
from django_ojs.spec.envelope import Envelope

#: Gets the envelopes, which it may change, and what stores them. It returns the result of that.
Wrapper = Callable[[Sequence[Envelope], Callable[[], list[EnqueuedJob]]], list[EnqueuedJob]]

#: Gets the type of a new workflow, and the position of a step. It returns what the `meta` of the
#: job of this step gets, unless it has members of these names.
StepMeta = Callable[[str, int], Mapping[str, str | int]]

#: What wraps each enqueue.
wrapper: Wrapper | None = None
_step_meta: StepMeta | None = None


def install(around: Wrapper | None, step_meta: StepMeta | None = None) -> None:
    """Wrap each enqueue, and mark the jobs of each new workflow, from now on; None: none."""
    global wrapper, _step_meta
    wrapper, _step_meta = around, step_meta


def step_meta() -> StepMeta | None:
    """Return what marks the jobs of new workflows, or None."""
    return _step_meta

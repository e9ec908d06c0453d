"""External payloads (payload-limits §5): large arguments of Python code are stored in S3.

The worker resolves the references among the arguments of a job before it calls the handler.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from django_ojs.conf import of
from django_ojs.extension import DueStep, Extension, Hooks
from django_ojs.extensions.payloads.reference import is_reference
from django_ojs.extensions.payloads.settings import PayloadSettings

if TYPE_CHECKING:
    from django_ojs.extensions.payloads.parameter_kinds import ParameterKinds

#: How the parameters of each handler take a payload.
_kinds: Final[dict[Any, "ParameterKinds"]] = {}


class OffloadExtension(Extension):
    """Stores large arguments elsewhere."""

    name = "offload"
    #: It comes before the outbox and the bounds of queues, which may store the jobs elsewhere, or
    #: wait.
    number = 8
    settings = PayloadSettings

    def hooks(self) -> Hooks:
        """Return the hooks. Without OFFLOAD, only references that clients made are resolved."""
        if of(PayloadSettings).offload is None:
            return Hooks(around_run=_run)
        from django_ojs.extensions.payloads import offload

        return Hooks(
            note=offload.ArgumentOffloader,
            admit=offload.take,
            around_store=offload.store,
            around_run=_run,
            erased=offload.remove_of,
        )

    def due_steps(self) -> Sequence[DueStep]:
        """Sweep the store: remove the objects whose jobs do not exist."""
        from django_ojs.extensions.payloads import sweep

        return (DueStep(run=sweep.Sweeper().start, interval=sweep.INTERVAL),)


def _run(run: Any, go_on: Callable[[], Any]) -> Any:
    """Resolve the references among the arguments, if there are any, and call the handler."""
    kinds = _kinds.get(run.handler)
    if kinds is None:
        from django_ojs.extensions.payloads.parameter_kinds import ParameterKinds

        kinds = _kinds[run.handler] = ParameterKinds(run.handler.parameters.values())
    if kinds.all_values and not any(map(is_reference, run.job.args)):
        return go_on()
    # It is imported only here, because it needs a reader for each scheme, and few jobs have
    # references.
    from django_ojs.extensions.payloads import resolver

    return resolver.run(run, kinds, go_on)

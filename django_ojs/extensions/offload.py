"""External payloads (payload-limits §5): large arguments of Python code are stored in S3.

The worker resolves the references among the arguments of a job before it calls the handler.
"""

from collections.abc import Callable
from typing import Any, Final
from weakref import WeakKeyDictionary

from django_ojs.conf import settings
from django_ojs.extension import Batch, Extension, Hooks
from django_ojs.operations.enqueue.result import EnqueuedJob, Outcome
from django_ojs.operations.push import PushOptions
from django_ojs.payloads.offload import ArgumentOffloader, remove_of
from django_ojs.payloads.parameter_kinds import ParameterKinds
from django_ojs.payloads.reference import is_reference
from django_ojs.spec.envelope import Envelope

#: How the parameters of each handler take a payload.
_kinds: Final = WeakKeyDictionary[Any, ParameterKinds]()


class OffloadExtension(Extension):
    """Stores large arguments elsewhere."""

    name = "offload"
    #: Before the bounds of queues: they may wait for room, or store the jobs in the outbox.
    number = 9

    def hooks(self) -> Hooks:
        """Return the hooks: without OFFLOAD, references that clients made are resolved."""
        if settings().offload is None:
            return Hooks(around_run=_run)
        return Hooks(
            note=ArgumentOffloader,
            admit=_take,
            around_store=_store,
            around_run=_run,
            erased=remove_of,
        )


def _take(options: PushOptions, envelope: Envelope) -> Envelope:
    offloader = options.note(ArgumentOffloader)
    return envelope if offloader is None else offloader.take(envelope)


def _store(batch: Batch, store: Callable[[], list[EnqueuedJob]]) -> list[EnqueuedJob]:
    """Store large arguments, and remove those of jobs that were not stored."""
    offloader = batch.options.note(ArgumentOffloader)
    if offloader is None:
        return store()
    stored: list[EnqueuedJob] = []
    try:
        offloader.keep()
        stored = store()
    finally:
        offloader.settle(
            {job.id for job in stored if job.outcome in (Outcome.STORED, Outcome.OUTBOX)}
        )
    return stored


def _run(run: Any, go_on: Callable[[], Any]) -> Any:
    """Resolve the references among the arguments, if there are any, and call the handler."""
    kinds = _kinds.get(run.handler)
    if kinds is None:
        kinds = _kinds[run.handler] = ParameterKinds(run.handler.parameters.values())
    if kinds.all_values and not any(map(is_reference, run.job.args)):
        return go_on()
    # Not at the top: it needs a reader for each scheme, and few jobs have references.
    from django_ojs.payloads import resolver

    return resolver.run(run, kinds, go_on)

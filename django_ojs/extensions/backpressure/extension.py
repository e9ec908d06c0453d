"""Backpressure (ojs-backpressure): the bounds of queues, and what happens if one is full."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from django.http import HttpRequest

from django_ojs import hooks
from django_ojs.extension import Batch, Declared, DueStep, Extension, Hooks
from django_ojs.extensions.backpressure import storage as bounds
from django_ojs.extensions.backpressure.operations import (
    bound_check,
    pressure_monitor,
    rejection_counts,
)
from django_ojs.extensions.backpressure.operations.wait_policy import wait_for_room
from django_ojs.extensions.backpressure.storage import Load
from django_ojs.operations.enqueue.result import EnqueuedJob, Outcome
from django_ojs.spec.errors import OJSError, QueueFull
from django_ojs.spec.full_policy import FullPolicy
from django_ojs.spec.states import State
from django_ojs.storage.dialects.job_row import NewRow

_NONE: Final = FullPolicy()


class BackpressureExtension(Extension):
    """Bounds the depth of queues."""

    name = "backpressure"
    number = 11

    def hooks(self) -> Hooks:
        """Return the hooks; no setting changes them."""
        return Hooks(
            around_store=_store,
            around_insert=_insert,
            around_admit_again=bound_check.admitted_again,
            queue_configured=bounds.rebound,
            queue_deleted=bounds.remove,
            counts_repaired=bounds.withdraw_tickets,
            rejected=_count,
            request_note=_request_note,
            push_headers=_push_headers,
            error_headers=_error_headers,
            request_served=pressure_monitor.watch.request,
        )

    def due_steps(self) -> Sequence[DueStep]:
        """Report which queues come under pressure, and restore bounds that were lost."""
        return (
            DueStep(run=pressure_monitor.check_all, interval=1.0, when=bounds.any_condition),
            DueStep(run=pressure_monitor.restore_bounds, interval=60.0),
        )

    def manifest(self) -> Sequence[Declared]:
        """Declare backpressure."""
        return (Declared(official="backpressure"),)

    def fullness(self, statuses: Sequence[Any], may_be_full: bool) -> Iterable[tuple[str, Any]]:
        """Return how full the bounded queues are."""
        from django_ojs.extensions.backpressure import fullness

        return fullness.of(statuses, may_be_full=may_be_full)

    def metrics(self, within: Collection[str] | None) -> Iterable[Any]:
        """Return the pressure of bounded queues."""
        from django_ojs.extensions.backpressure.metrics import metrics

        return metrics(within)


# The module `http` of this package is imported by a request, and not by a worker.


def _request_note(request: HttpRequest, types: Collection[str]) -> FullPolicy | None:
    from django_ojs.extensions.backpressure import http

    return http.policy_of(request, types)


def _push_headers(queues: Collection[str]) -> Mapping[str, str]:
    from django_ojs.extensions.backpressure import http

    return http.warning(queues)


def _error_headers(error: OJSError) -> Mapping[str, str]:
    if not isinstance(error, QueueFull):
        return {}
    from django_ojs.extensions.backpressure import http

    return http.rejection(error)


def _store(batch: Batch, store: Callable[[], list[EnqueuedJob]]) -> list[EnqueuedJob]:
    """Store jobs, after waiting for room if the caller wants to."""
    policy = batch.options.note(FullPolicy) or _NONE
    return store() if policy.wait is None else wait_for_room(store, policy.wait)


def _insert(batch: Batch, insert: Callable[[], Sequence[NewRow] | None]) -> Sequence[NewRow] | None:
    """Store jobs if their queues have room; jobs of one call do not drop each other."""
    if not batch.earlier:
        return bound_check.insert_admitted(batch, insert)
    results = {job.id for job in batch.earlier}
    try:
        with hooks.with_own_jobs(lambda _: results):
            return bound_check.insert_admitted(batch, insert)
    except QueueFull as full:
        if full.part is None:
            bound_check.add_needs(full, _load_of(full.queue, batch.earlier))
        raise


def _count(full: QueueFull, jobs: Sequence[Any]) -> None:
    rejection_counts.recorder.reject(full, jobs)


def _load_of(queue: str, earlier: Sequence[EnqueuedJob]) -> Load:
    """Return the load that these results have added to a queue."""
    stored = [
        job.row.size_bytes or 0
        for job in earlier
        if job.queue == queue
        and job.outcome is Outcome.STORED
        and job.row is not None
        and job.state is not State.PENDING
    ]
    return Load(jobs=len(stored), size=sum(stored))

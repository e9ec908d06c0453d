"""Sends the signals of `django_ojs.signals`, after the commit of each change."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from django.dispatch import Signal

from django_ojs import signals
from django_ojs.extension import Change, Extension, Hooks, Reads
from django_ojs.models import Job, Worker
from django_ojs.spec.states import State, Trigger


class SignalsExtension(Extension):
    """Sends the signals."""

    name = "signals"
    number = 3

    def hooks(self) -> Hooks:
        """Return the hooks for the signals that have receivers now."""
        wanted = {
            trigger: hook
            for trigger, (hook, senders) in _CHANGED.items()
            if any(signal.has_listeners(Job) for signal in senders)
        }
        return Hooks(
            stored_and_committed=_stored if signals.job_enqueued.has_listeners(Job) else None,
            changed_and_committed=wanted,
            worker_started=_worker_started,
            worker_stopping=_worker_stopping,
            reads={trigger: _READS.get(trigger, Reads.WHOLE_ROWS) for trigger in wanted},
        )


def _send(signal: Signal, job: Any, **details: Any) -> None:
    signal.send_robust(sender=Job, job=job, **details)


def _stored(jobs: Sequence[Any]) -> None:
    for job in jobs:
        _send(signals.job_enqueued, job)


def _worker_started(worker_id: str) -> None:
    signals.worker_process_started.send_robust(sender=Worker, worker_id=worker_id)


def _worker_stopping(worker_id: str) -> None:
    signals.worker_process_stopping.send_robust(sender=Worker, worker_id=worker_id)


def _sends(signal: Signal) -> Callable[[Change], None]:
    def send(change: Change) -> None:
        for job in change.rows():
            _send(signal, job)

    return send


def _started(change: Change) -> None:
    for job in change.jobs().values():
        _send(signals.job_started, job)


def _failed(change: Change) -> None:
    rows = {job.pk: job for job in change.rows()}
    for key in change.before:
        if not change.known.spends:
            _send(signals.job_returned, rows[key])
            continue
        ended = change.after[key] is State.DISCARDED
        failure = change.known.failures[key]
        _send(signals.job_failed, rows[key], failure=failure)
        follow_up = signals.job_discarded if ended else signals.job_retrying
        _send(follow_up, rows[key], failure=failure)


def _lapsed(change: Change) -> None:
    rows = {job.pk: job for job in change.rows()}
    for signal, state in (
        (signals.job_returned, State.AVAILABLE),
        (signals.job_discarded, State.DISCARDED),
    ):
        for key, job in rows.items():
            if change.after[key] is state:
                _send(signal, job)


def _returned(change: Change) -> None:
    # If a worker returns a claimed job before it has run, no signal is sent.
    if change.known.has_run:
        _sends(signals.job_returned)(change)


_DISCARDED: Final = (_sends(signals.job_discarded), (signals.job_discarded,))

#: For each trigger, the function that sends its signals, and the signals.
_CHANGED: Final[Mapping[Trigger, tuple[Callable[[Change], None], Sequence[Signal]]]] = {
    Trigger.FETCH: (_started, (signals.job_started,)),
    Trigger.ACK: (_sends(signals.job_completed), (signals.job_completed,)),
    Trigger.FAIL: (
        _failed,
        (
            signals.job_failed,
            signals.job_retrying,
            signals.job_discarded,
            signals.job_returned,
        ),
    ),
    Trigger.CANCEL: (_sends(signals.job_cancelled), (signals.job_cancelled,)),
    Trigger.LAPSE: (_lapsed, (signals.job_returned, signals.job_discarded)),
    Trigger.RETURN: (_returned, (signals.job_returned,)),
    Trigger.ACTIVATE: (_sends(signals.job_activated), (signals.job_activated,)),
    Trigger.RETRY: (_sends(signals.job_retried), (signals.job_retried,)),
    Trigger.EXPIRE: _DISCARDED,
    Trigger.DROP: _DISCARDED,
    Trigger.DELETE_QUEUE: _DISCARDED,
}

#: The receivers of `job_started` get the jobs as they were claimed.
_READS: Final = {Trigger.FETCH: Reads.NOTHING}

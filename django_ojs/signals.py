"""Django signals for the life of a job, sent after the commit of the change.

The sender is `django_ojs.models.Job`. Each signal has `job`, the job as it was then (a Job, or for
the worker's own runs a claimed job with the same attributes); `job_failed` and `job_discarded` also
have `failure`, if a failure caused them. A receiver that raises is logged and harms neither the job
nor the other receivers.
"""

from typing import Any

from django.dispatch import Signal

from django_ojs.hooks import registry


class JobSignal(Signal):
    """A signal that costs nothing while it has no receiver."""

    def __init__(self) -> None:
        super().__init__(use_caching=True)

    def connect(self, *args: Any, **kwargs: Any) -> None:
        """Connect a receiver, as Django's signals do."""
        super().connect(*args, **kwargs)
        registry.compile()

    def disconnect(self, *args: Any, **kwargs: Any) -> bool:
        """Disconnect a receiver, as Django's signals do."""
        was_connected = super().disconnect(*args, **kwargs)
        registry.compile()
        return was_connected


job_enqueued = JobSignal()
job_started = JobSignal()
job_completed = JobSignal()
#: A run failed; the job will run again or is discarded, and `job_retrying` or `job_discarded`
#: follows.
job_failed = JobSignal()
job_retrying = JobSignal()
job_discarded = JobSignal()
job_cancelled = JobSignal()
#: A claim lapsed without a response from its worker, or was given back; the job is available again.
job_returned = JobSignal()
#: A pending job was activated; a discarded one was retried by hand.
job_activated = JobSignal()
job_retried = JobSignal()

#: A process of a worker begins, before its first claim, or ends, after its last job. A project can
#: start and stop its threads here: a forked process has no thread of its parent. The sender is the
#: model Worker, and `worker_id` is passed.
worker_process_started = Signal()
worker_process_stopping = Signal()

"""Django signals for the life of a job, sent after the commit of the change.

The sender is `django_ojs.models.Job`. Each carries `job`, the job as it was then (a Job, or for the
worker's own runs a claimed job with the same attributes); `job_failed` and `job_discarded` carry
`failure` too, when one led to it. A receiver that raises is logged and harms neither the job nor
the other receivers.
"""

from django.dispatch import Signal

# Most have no receiver, and every job checks: Django caches the receivers, as for its models.
job_enqueued = Signal(use_caching=True)
job_started = Signal(use_caching=True)
job_completed = Signal(use_caching=True)
#: A run failed; the job will run again or is discarded, and `job_retrying` or `job_discarded`
#: follows.
job_failed = Signal(use_caching=True)
job_retrying = Signal(use_caching=True)
job_discarded = Signal(use_caching=True)
job_cancelled = Signal(use_caching=True)
#: A claim lapsed without a response from its worker, or was given back; the job is available again.
job_returned = Signal(use_caching=True)
#: A pending job was activated, or a discarded one retried by hand.
job_activated = Signal(use_caching=True)
job_retried = Signal(use_caching=True)

#: A process of a worker begins, before its first claim, or ends, after its last job: for threads
#: that a project starts, which no process has after it was forked. The sender is the model Worker;
#: they carry `worker_id`.
worker_process_started = Signal()
worker_process_stopping = Signal()

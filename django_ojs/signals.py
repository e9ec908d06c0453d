"""Django signals for the life of a job, sent after the commit of the change they tell of.

The sender is `django_ojs.models.Job`. Each carries `job`, the job as it was then (a Job, or for the
worker's own runs a claimed job with the same attributes); `job_failed` and `job_discarded` carry
`failure` too, when one led to it. A receiver that raises is logged and harms neither the job nor
the other receivers.
"""

from django.dispatch import Signal

job_enqueued = Signal()
job_started = Signal()
job_completed = Signal()
#: A run failed; the job will run again or is discarded, and `job_retrying` or `job_discarded`
#: follows.
job_failed = Signal()
job_retrying = Signal()
job_discarded = Signal()
job_cancelled = Signal()
#: A claim ended without an answer from its worker, or was given back; the job is available again.
job_returned = Signal()
#: A pending job was activated, or a discarded one retried by hand.
job_activated = Signal()
job_retried = Signal()

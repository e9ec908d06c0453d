"""RETRY by hand (ojs-core §6.3): a discarded job gets another life."""

from typing import Any
from uuid import UUID

from django.db.models.functions import Now

from django_ojs import signals
from django_ojs.models import Job
from django_ojs.operations import announce, jobs
from django_ojs.spec.states import Event, State
from django_ojs.storage import database, transitions, wakeup


def retry(job_id: UUID) -> Job:
    """Make a discarded job available again: attempts start anew, the history of its errors stays.

    A deadline that has passed is dropped, or the job would be discarded again at once. Raises
    JobNotFound, and Conflict when it is not discarded.
    """

    def operation() -> Job:
        job = transitions.lock(job_id)
        deadline: dict[str, Any] = {}
        if jobs().filter(pk=job_id, expires_at__lte=Now()).exists():
            # Answers repeat it as the client wrote it: what no longer holds is not to be shown.
            shown = {key: value for key, value in job.options.items() if key != "expires_at"}
            deadline = {"expires_at": None, "options": shown}
        transitions.apply_one(
            Event.RETRY,
            State.AVAILABLE,
            job_id,
            attempt=0,
            returned=0,
            error=None,
            dead_letter=False,
            discard_reason=None,
            finished_at=None,
            started_at=None,
            worker_id=None,
            enqueued_at=Now(),
            **deadline,
        )
        return transitions.get(job_id)

    job = database.in_write_transaction(operation)
    wakeup.announce([job.queue])
    announce(signals.job_retried, job)
    return job

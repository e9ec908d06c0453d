"""ACTIVATE (ojs-core §6.3): a pending job may run."""

from uuid import UUID

from django.db.models.functions import Now

from django_ojs import signals
from django_ojs.models import Job
from django_ojs.operations.backpressure import bounds, rejections
from django_ojs.operations.events import publish
from django_ojs.spec.states import Event, State
from django_ojs.storage import database, notify, transitions


def activate(job_id: UUID) -> Job:
    """Make a pending job available. Raises JobNotFound, Conflict when it is not pending, and
    QueueFull.
    """

    def operation() -> Job:
        held = transitions.lock(job_id)
        if held.state == State.PENDING:
            # It waited outside of its queue's bound, and enters it now.
            with rejections.recorded([held]):
                bounds.enter_all([held])
        transitions.apply_one(
            Event.ACTIVATE, State.AVAILABLE, job_id, activated_at=Now(), enqueued_at=Now()
        )
        job = transitions.get(job_id)
        notify.announce([job.queue])
        publish.available(job, signals.job_activated)
        return job

    return database.in_write_transaction(operation)

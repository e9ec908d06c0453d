"""Cancel jobs whose rows the caller has locked (ojs-core §7.6)."""

from collections.abc import Collection

from django.db.models.functions import Now

from django_ojs.extension import Known
from django_ojs.models import Job
from django_ojs.models.attempt import AttemptOutcome
from django_ojs.operations.histories import record
from django_ojs.spec.states import State, Trigger
from django_ojs.storage import transitions


def stop(held: Collection[Job]) -> None:
    """Cancel these jobs, which the caller has locked and which may be cancelled."""
    running = [job.pk for job in held if job.state == State.ACTIVE]
    record(running, AttemptOutcome.CANCELLED, None)
    transitions.apply(
        Trigger.CANCEL,
        State.CANCELLED,
        {job.pk: State(job.state) for job in held},
        known=Known(jobs={job.pk: job for job in held}),
        finished_at=Now(),
        lease_until=None,
    )

"""`drop_oldest`: discard the oldest available jobs, to admit new ones (ojs-backpressure §5.3)."""

from django.db.models.functions import Now

from django_ojs.extension import Known
from django_ojs.extensions.backpressure.storage import Load
from django_ojs.hooks import is_published, own_jobs, publish_all
from django_ojs.models import Job
from django_ojs.spec.published import EventType, of_queue
from django_ojs.spec.queue_config import Backpressure
from django_ojs.spec.states import State, Trigger
from django_ojs.storage import transitions


def drop_oldest(queue: str, bound: Backpressure, before: Load, added: Load) -> Load | None:
    """Discard the oldest available jobs until the added ones fit; return the remaining load.

    The caller holds the queue lock. Return None, and discard nothing, if discarding all of them is
    not enough.
    """
    dropped, left = _to_drop(queue, bound, before, added)
    if not left.with_(added.jobs, added.size).fits(bound):
        return None
    if is_published(EventType.BACKPRESSURE_DROPPED):
        publish_all(
            of_queue(EventType.BACKPRESSURE_DROPPED, queue, job_id=str(job.pk), job_type=job.type)
            for job in dropped
        )
    transitions.apply(
        Trigger.DROP,
        State.DISCARDED,
        {job.pk: State.AVAILABLE for job in dropped},
        known=Known(jobs={job.pk: job for job in dropped}, reason="dropped"),
        finished_at=Now(),
        discard_reason="dropped",
    )
    return left


def _to_drop(queue: str, bound: Backpressure, before: Load, added: Load) -> tuple[list[Job], Load]:
    limit = max(1, before.jobs + added.jobs - (bound.max_depth or before.jobs + added.jobs))
    # A call must not replace jobs that it has added itself.
    own = own_jobs(queue)
    while True:
        dropped: list[Job] = []
        left = before
        read = limit + len(own)
        found = transitions.oldest_available(queue, read)
        for job in found:
            if job.pk in own:
                continue
            if left.with_(added.jobs, added.size).fits(bound):
                return dropped, left
            dropped.append(job)
            left = left.with_(-1, -(job.size_bytes or 0))
        if left.with_(added.jobs, added.size).fits(bound) or len(found) < read:
            return dropped, left
        # The bound in bytes decides, so the sizes determine how many jobs to drop: read more.
        limit *= 4

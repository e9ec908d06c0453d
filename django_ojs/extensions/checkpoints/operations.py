"""Checkpoints (ojs-durable-execution §4 to §6): where the next run of a job can continue."""

from contextlib import AbstractContextManager
from typing import Final
from uuid import UUID

from django.db.models import F

from django_ojs.conf import settings
from django_ojs.extensions.checkpoints import storage as checkpoints
from django_ojs.extensions.checkpoints.models import MARK, Checkpoint
from django_ojs.extensions.checkpoints.spec import SavedCheckpoint, encode
from django_ojs.hooks import is_published, publish
from django_ojs.models import Job
from django_ojs.operations import worker_activity
from django_ojs.operations.worker_activity import Principal
from django_ojs.spec import json
from django_ojs.spec.errors import ClaimLost, Conflict, NotFound
from django_ojs.spec.published import EventType, of_run
from django_ojs.spec.states import State
from django_ojs.storage import database, transitions
from django_ojs.storage.transitions import ANY_CLAIM, Claim

#: Milliseconds to wait for the row of a checkpoint while the row of its job is locked. A short
#: transaction ends within this time.
ROW_TIMEOUT_MS: Final = 20


def save(
    job_id: UUID,
    state: json.JSON,
    *,
    claim: Claim = ANY_CLAIM,
    principal: Principal = worker_activity.PROJECT,
) -> SavedCheckpoint:
    """Replace the checkpoint of an active job, and extend its lease as a heartbeat does.

    Raises InvalidRequest and PayloadTooLarge for the state, JobNotFound, Conflict when the job is
    not active, and ClaimLost when it is active under another claim.
    """
    return _save(job_id, encoded(state), claim, principal)


@database.write_transaction
def _save(job_id: UUID, text: str, claim: Claim, principal: Principal) -> SavedCheckpoint:
    job = transitions.lock(job_id)
    _check(job, claim)
    Job.primary.filter(pk=job_id).update(lease_until=worker_activity.extended())
    worker_activity.after_progress(job.worker_id, principal)
    return store(job, text)


@database.write_transaction
def announce(job_id: UUID, *, claim: Claim) -> None:
    """Note that a run is about to save a checkpoint with `save_unlocked`. Raises as `save` does."""
    job = transitions.lock(job_id)
    _check(job, claim)
    _mark(job)


def save_unlocked(job_id: UUID, state: json.JSON, *, claim: Claim) -> SavedCheckpoint:
    """Replace the checkpoint in the caller's transaction, without a lock on the job.

    A lock would block the heartbeats of the worker until the commit. The claim is checked only when
    this is called, and the checkpoint of a later run is never replaced. Raises as `save` does.
    """
    text = encoded(state)
    job = transitions.get(job_id)
    _check(job, claim)
    return _store(job, text)


def encoded(state: object) -> str:
    """Return a state as JSON, with integers that the settings allow. Raises as `save` does."""
    return encode(state, exact_integers=settings().exact_integers)


def store(job: Job, text: str) -> SavedCheckpoint:
    """Store the checkpoint of an active job, which the caller has locked."""
    _mark(job)
    with _no_wait():
        return _store(job, text)


def read(job_id: UUID) -> SavedCheckpoint:
    """Return the latest checkpoint of a job. Raises JobNotFound, and NotFound if it has none."""
    return found(transitions.get(job_id))


def latest(job: Job) -> SavedCheckpoint | None:
    """Return the latest checkpoint of a job that has not ended, or of a dead letter."""
    if not job.marks & MARK or (job.finished_at is not None and not job.dead_letter):
        return None
    return Checkpoint.of([job.pk]).get(job.pk)


def found(job: Job) -> SavedCheckpoint:
    """Return the latest checkpoint of a job. Raises NotFound if it has none."""
    checkpoint = latest(job)
    if checkpoint is None:
        raise _none(job)
    return checkpoint


@database.write_transaction
def delete(job_id: UUID) -> None:
    """Delete the checkpoint: the next run starts from the beginning. Raises as `read` does."""
    job = transitions.lock(job_id)
    with _no_wait():
        found = latest(job) is not None and checkpoints.delete(job_id)
    if not found:
        raise _none(job)


def _no_wait() -> AbstractContextManager[None]:
    """Fail instead of waiting long for the row of a checkpoint, with the row of its job locked.

    The open transaction of a handler may hold the row for as long as the handler runs; meanwhile
    the lock of the job would block the heartbeats of its worker. The error is a contention error,
    so the operation is repeated, and the job is unlocked in between.
    """
    return database.dialect().lock_timeout(database.connection(), ROW_TIMEOUT_MS)


def _check(job: Job, claim: Claim) -> None:
    details = {"job_id": str(job.pk), "current_state": job.state, "expected_state": State.ACTIVE}
    if job.state != State.ACTIVE:
        message = f"The job is {job.state}; only an active job can save a checkpoint."
        raise Conflict(message, details=details)
    if not claim.holds(job):
        raise ClaimLost("The job is active under another claim.", details=details)


def _mark(job: Job) -> None:
    if not job.marks & MARK:
        Job.primary.filter(pk=job.pk).update(marks=F("marks").bitor(MARK))


def _store(job: Job, text: str) -> SavedCheckpoint:
    saved = checkpoints.save(job.pk, job.run, text)
    if saved is None:
        raise ClaimLost("A later run has saved a checkpoint.", details={"job_id": str(job.pk)})
    if is_published(EventType.JOB_CHECKPOINTED):
        size = len(text.encode())
        publish(EventType.JOB_CHECKPOINTED, of_run, job, sequence=saved.sequence, size_bytes=size)
    return saved


def _none(job: Job) -> NotFound:
    details = {"resource_type": "checkpoint", "resource_id": str(job.pk)}
    return NotFound("The job has no checkpoint.", details=details)

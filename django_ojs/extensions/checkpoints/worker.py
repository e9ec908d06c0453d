"""Save the checkpoint of a handler, in the handler's open transaction if it has one."""

from functools import partial

from django_ojs.extensions.checkpoints import operations as checkpoint
from django_ojs.extensions.checkpoints.models import MARK
from django_ojs.spec import json
from django_ojs.spec.errors import BackendTimeout
from django_ojs.storage.claimed_job import Claimed
from django_ojs.storage.transitions import Claim
from django_ojs.worker import outside_transaction

#: Seconds after which the first checkpoint of a job fails, if the row of the job stays locked.
WRITE_TIMEOUT = 30.0


def save(job: Claimed, state: json.JSON) -> None:
    """Save the checkpoint of a run. Raises as `operations.save` does."""
    claim = Claim(worker_id=job.worker_id, run=job.run)
    if not outside_transaction.in_transaction():
        checkpoint.save(job.id, state, claim=claim)
        return
    # The checkpoint commits with the handler's rows, or not at all. The job's row is changed on
    # another connection, since its lock would block the beats of the whole worker.
    if not job.marks & MARK:
        announce = partial(checkpoint.announce, job.id, claim=claim)
        if not outside_transaction.run(announce, timeout=WRITE_TIMEOUT):
            raise BackendTimeout("The row of the job stayed locked: the checkpoint is not saved.")
        job.marks |= MARK
    checkpoint.save_unlocked(job.id, state, claim=claim)

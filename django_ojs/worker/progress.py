"""Store the progress that a handler reports, without blocking its job or its worker."""

from django_ojs.operations import progress
from django_ojs.spec.errors import Conflict, JobNotFound
from django_ojs.spec.progress import Report
from django_ojs.spec.states import State
from django_ojs.storage.claims import Claimed
from django_ojs.storage.transitions import Claim
from django_ojs.worker import own_connection

#: Seconds after which a handler no longer waits for its report to be stored.
WRITE_TIMEOUT = 5.0


def report(job: Claimed, reported: Report) -> bool:
    """Store a report of a run. Return False when the run has lost its claim on the job."""
    claim = Claim(worker_id=job.worker_id, run=job.run)
    held = True

    def write() -> None:
        nonlocal held
        try:
            held = progress.report(job.id, reported, claim=claim).state == State.ACTIVE
        except (Conflict, JobNotFound):
            held = False

    if own_connection.in_transaction():
        # In the handler's transaction the report would be invisible until the commit, and its lock
        # on the job row would block the beats of the whole worker.
        own_connection.run(write, timeout=WRITE_TIMEOUT)
    else:
        write()
    return held

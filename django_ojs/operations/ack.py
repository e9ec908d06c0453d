"""ACK (ojs-core §7.3): a job's handler succeeded."""

from collections.abc import Sequence
from uuid import UUID

from django.db.models.functions import Now

from django_ojs import signals
from django_ojs.conf import settings
from django_ojs.models import Job
from django_ojs.operations.events import publish
from django_ojs.spec import job_events, json
from django_ojs.spec.envelope import check_bytes
from django_ojs.spec.errors import InvalidRequest, PayloadTooLarge
from django_ojs.spec.states import State, Trigger
from django_ojs.storage import database, transitions
from django_ojs.storage.figures import rollups
from django_ojs.storage.transitions import ANY_CLAIM, Claim


def ack(job_id: UUID, *, claim: Claim = ANY_CLAIM, result: json.JSON = None) -> Job:
    """Complete an active job and store its result, unless it is None.

    Raises JobNotFound, Conflict when the job is not active, ClaimLost when it is active under
    another claim, InvalidRequest when JSON cannot represent the result.
    """
    job = complete(job_id, claim=claim, result=result) or transitions.get(job_id)
    rollups.completed_after_commit(job)
    publish.send_after_commit(signals.job_completed, job)
    return job


def complete(job_id: UUID, *, claim: Claim = ANY_CLAIM, result: json.JSON = None) -> Job | None:
    """Complete an active job without the signal of `ack`. Raises as `ack` does.

    Return the job only if it was read for its event, which is not always recorded.
    """
    check_result(result)
    return _complete(job_id, claim, result)


@database.retry_contention
def _complete(job_id: UUID, claim: Claim, result: json.JSON) -> Job | None:
    # A worker that was declared dead may send an ACK for a job that another one runs now: the claim
    # decides (worker-protocol §5.6). HTTP clients may omit the claim; then the state alone decides.
    values = {"finished_at": Now(), "result": result, "error": None, "lease_until": None}
    with publish.atomic_if_published(*publish.COMPLETED):
        transitions.apply_one(Trigger.ACK, State.COMPLETED, job_id, claim=claim, **values)
        if not publish.is_recorded(*publish.COMPLETED):
            return None
        job = transitions.get(job_id)
        publish.record([job_events.completed(job)])
        return job


@database.retry_contention
def ack_batch(worker_id: str, finished: Sequence[tuple[UUID, int, json.JSON]]) -> set[UUID]:
    """Complete many jobs of one worker, given as (id, run, result), in one statement.

    Return the ids of those under its claim; the others were cancelled, or lapsed.
    """
    with publish.atomic_if_published(*publish.COMPLETED, signal=signals.job_completed):
        kept = transitions.complete(worker_id, finished)
        publish.completed(kept)
    return kept


def check_result(result: json.JSON) -> None:
    """Check a result before it is stored.

    Raises InvalidRequest, naming the path, where JSON cannot represent it, and PayloadTooLarge.
    """
    if result is None:
        return
    values = settings()
    size = json.check(result, "result", exact_integers=values.exact_integers, error=InvalidRequest)
    if size > values.max_result_bytes:  # An upper bound: the size itself is measured then.
        check_bytes(result, values.max_result_bytes, "result", PayloadTooLarge)

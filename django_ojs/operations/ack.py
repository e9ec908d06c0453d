"""ACK (ojs-core §7.3): a job's handler succeeded."""

from collections.abc import Sequence
from uuid import UUID

from django.db.models.functions import Now

from django_ojs.conf import settings
from django_ojs.extension import NOTHING_KNOWN, Known
from django_ojs.models import Job
from django_ojs.spec import json
from django_ojs.spec.envelope import check_bytes
from django_ojs.spec.errors import InvalidRequest, PayloadTooLarge
from django_ojs.spec.states import State, Trigger
from django_ojs.storage import database, transitions
from django_ojs.storage.transitions import ANY_CLAIM, Claim


def ack(job_id: UUID, *, claim: Claim = ANY_CLAIM, result: json.JSON = None) -> Job:
    """Complete an active job and store its result, unless it is None.

    Raises JobNotFound, Conflict when the job is not active, ClaimLost when it is active under
    another claim, InvalidRequest when JSON cannot represent the result.
    """
    check_result(result)
    return _complete(job_id, claim, result) or transitions.get(job_id)


def complete(job_id: UUID, *, claim: Claim = ANY_CLAIM, result: json.JSON = None) -> None:
    """Complete an active job in the transaction of its handler. Raises as `ack` does.

    After the commit, the worker calls `transitions.follow_up_ack` for the rest, so that the rest
    does not count towards the timeout.
    """
    check_result(result)
    _complete(job_id, claim, result, is_followed_up=False)


@database.retry_contention
def _complete(
    job_id: UUID, claim: Claim, result: json.JSON, *, is_followed_up: bool = True
) -> Job | None:
    # A worker that was declared dead may send an ACK for a job that another one runs now: the claim
    # decides (worker-protocol §5.6). HTTP clients may omit the claim; then the state alone decides.
    if is_followed_up and database.dialect().has_update_returning:
        return transitions.complete_one(job_id, claim, result)
    return transitions.apply_one(
        Trigger.ACK,
        State.COMPLETED,
        job_id,
        claim=claim,
        is_followed_up=is_followed_up,
        finished_at=Now(),
        result=result,
        error=None,
        lease_until=None,
    )


@database.retry_contention
def ack_batch(
    worker_id: str,
    finished: Sequence[tuple[UUID, int, json.JSON]],
    known: Known = NOTHING_KNOWN,
) -> set[UUID]:
    """Complete many jobs of one worker, given as (id, run, result), in one statement.

    Return the ids of the jobs that it still held. The others were cancelled, or their leases had
    lapsed.
    """
    return transitions.complete(worker_id, finished, known)


def check_result(result: json.JSON) -> None:
    """Check a result before it is stored.

    Raises InvalidRequest, naming the path, where JSON cannot represent it, and PayloadTooLarge.
    """
    if result is None:
        return
    values = settings()
    size = json.check(result, "result", exact_integers=values.exact_integers, error=InvalidRequest)
    # `size` is only an upper bound, so the exact size is measured now.
    if size > values.max_result_bytes:
        check_bytes(result, values.max_result_bytes, "result", PayloadTooLarge)

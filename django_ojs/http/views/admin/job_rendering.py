"""Jobs in the responses of the control plane."""

from typing import Any

from django_ojs.http.responses import timestamps
from django_ojs.models import Job
from django_ojs.spec.failure import with_code
from django_ojs.spec.states import State

_FINISHED: dict[State, str] = {
    State.COMPLETED: "completed_at",
    State.CANCELLED: "cancelled_at",
    State.DISCARDED: "discarded_at",
}
_ERROR = ("type", "code", "message")
_DUE: dict[State, str] = {State.SCHEDULED: "scheduled_at", State.RETRYABLE: "next_attempt_at"}
#: The times that are repeated under `metadata` (ojs-admin-api §7.2).
_METADATA = (
    "created_at",
    "enqueued_at",
    "started_at",
    "scheduled_at",
    "completed_at",
    "cancelled_at",
    "discarded_at",
)


def summary(job: Job) -> dict[str, Any]:
    """Return a job as an item of a list, without arguments and result (ojs-admin-api §7.1)."""
    out: dict[str, Any] = {
        "id": str(job.pk),
        "type": job.type,
        "queue": job.queue,
        "state": job.state,
        "priority": job.priority,
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        **timestamps(
            created_at=job.created_at,
            enqueued_at=job.enqueued_at,
            started_at=job.started_at,
            expires_at=job.expires_at,
        ),
    }
    state = State(job.state)
    if state in _DUE:
        out |= timestamps(**{_DUE[state]: job.due_at})
    if job.finished_at is not None:
        out |= timestamps(**{_FINISHED[state]: job.finished_at})
    if job.worker_id is not None:
        out["worker_id"] = job.worker_id
    if job.error is not None:
        # The other members of the error are in `detail`.
        error = with_code(job.error)
        out["error"] = {name: error.get(name) for name in _ERROR}
    return {**out, **_discarded(job)}


def detail(job: Job) -> dict[str, Any]:
    """Return a whole job: its envelope, all its errors, its worker (ojs-admin-api §7.2)."""
    out = job.envelope()
    out.setdefault("errors", [])
    if "retry" in out:
        out["retry_policy"] = out["retry"]
    if job.worker_id is not None:
        out["worker_id"] = job.worker_id
    out |= {**timestamps(lease_until=job.lease_until), **_discarded(job)}
    out["metadata"] = {name: out[name] for name in _METADATA if name in out}
    return out


def changed(job: Job, previous: State) -> dict[str, Any]:
    """Return a job that was changed, with its previous state."""
    return {**detail(job), "previous_state": previous.value}


def _discarded(job: Job) -> dict[str, Any]:
    if job.state != State.DISCARDED:
        return {}
    out: dict[str, Any] = {"dead_letter": job.dead_letter}
    if job.discard_reason is not None:
        out["discard_reason"] = job.discard_reason
    return out

"""Jobs, as the control plane shows them."""

from typing import Any

from django_ojs.models import Job
from django_ojs.spec.states import State
from django_ojs.spec.times import format_timestamp

_TIMES = ("created_at", "enqueued_at", "started_at", "expires_at")
_ENDED = {
    State.COMPLETED: "completed_at",
    State.CANCELLED: "cancelled_at",
    State.DISCARDED: "discarded_at",
}
#: The times that stand under `metadata` as well (ojs-admin-api §7.2).
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
    """Return a job as an item of a list: no arguments, no result (ojs-admin-api §7.1)."""
    out: dict[str, Any] = {
        "id": str(job.pk),
        "type": job.type,
        "queue": job.queue,
        "state": job.state,
        "priority": job.priority,
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
    }
    for name in _TIMES:
        if (moment := getattr(job, name)) is not None:
            out[name] = format_timestamp(moment)
    state = State(job.state)
    if job.due_at is not None and state is State.SCHEDULED:
        out["scheduled_at"] = format_timestamp(job.due_at)
    if job.due_at is not None and state is State.RETRYABLE:
        out["next_attempt_at"] = format_timestamp(job.due_at)
    if job.finished_at is not None:
        out[_ENDED[state]] = format_timestamp(job.finished_at)
    if job.worker_id is not None:
        out["worker_id"] = job.worker_id
    if job.error is not None:
        # The history of it all is in the detail.
        out["error"] = {name: job.error.get(name) for name in ("type", "message")}
    if state is State.DISCARDED:
        out["dead_letter"] = job.dead_letter
        if job.discard_reason is not None:
            out["discard_reason"] = job.discard_reason
    return out


def detail(job: Job) -> dict[str, Any]:
    """Return the whole of a job: its envelope, the history of its errors, who has it (§7.2)."""
    out = job.envelope()
    out["errors"] = [
        {**error, "occurred_at": error["timestamp"]} for error in out.get("errors", ())
    ]
    if "retry" in out:
        out["retry_policy"] = out["retry"]
    if job.worker_id is not None:
        out["worker_id"] = job.worker_id
    if job.lease_until is not None:
        out["lease_until"] = format_timestamp(job.lease_until)
    if job.state == State.DISCARDED:
        out["dead_letter"] = job.dead_letter
        if job.discard_reason is not None:
            out["discard_reason"] = job.discard_reason
    out["metadata"] = {name: out[name] for name in _METADATA if name in out}
    return out


def changed(job: Job, previous: State) -> dict[str, Any]:
    """Return a job that was just changed, and what it was before."""
    return {**detail(job), "previous_state": previous.value}

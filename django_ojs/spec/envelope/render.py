"""A job in a response: the whole envelope with its system attributes (core §5, http-binding §9)."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Protocol
from uuid import UUID

from django_ojs.spec import progress
from django_ojs.spec.envelope.fields import FIELDS
from django_ojs.spec.envelope.model import SPECVERSION
from django_ojs.spec.failure import with_code
from django_ojs.spec.retry_policy import FAILED_RUN
from django_ojs.spec.times import format_timestamp


class StoredJob(Protocol):
    """The attributes of a job in responses and events; a Job and a claimed job have them."""

    @property
    def id(self) -> UUID: ...
    @property
    def type(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def max_attempts(self) -> int: ...
    @property
    def args(self) -> Any: ...
    @property
    def meta(self) -> Any: ...
    @property
    def options(self) -> Any: ...
    @property
    def created_at(self) -> datetime | None: ...
    @property
    def enqueued_at(self) -> datetime | None: ...
    @property
    def due_at(self) -> datetime | None: ...
    @property
    def expires_at(self) -> datetime | None: ...
    @property
    def activated_at(self) -> datetime | None: ...
    @property
    def started_at(self) -> datetime | None: ...
    @property
    def finished_at(self) -> datetime | None: ...
    @property
    def run(self) -> int: ...
    @property
    def timeout_ms(self) -> int | None: ...
    @property
    def progress(self) -> Any: ...
    @property
    def result(self) -> Any: ...
    @property
    def error(self) -> Any: ...
    @property
    def discard_reason(self) -> str | None: ...
    @property
    def worker_id(self) -> str | None: ...
    @property
    def lease_until(self) -> datetime | None: ...
    @property
    def original_queue(self) -> str | None: ...


#: The attributes that clients require of a job, besides its arguments and metadata.
_OUTLINE: Final = (
    *("specversion", "id", "type", "queue", "state", "attempt", "max_attempts", "priority"),
    "created_at",
)
# These are shown as they are stored. Times and `specversion` are not among them, because they have
# their own places in the order.
_VERBATIM: Final = tuple(
    field.name for field in FIELDS if field.option and field.stored == field.name
)


def render(
    job: StoredJob,
    errors: Sequence[dict[str, Any]] | None = None,
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the JSON object of a job, without absent attributes; `meta` is always there.

    `errors` is the history, oldest first, and `more` has members that extensions add, for responses
    that carry them.
    """
    options: dict[str, Any] = job.options or {}
    state = str(job.state)
    out: dict[str, Any] = {
        "specversion": options.get("specversion", SPECVERSION),
        "id": str(job.id),
        "type": job.type,
        "queue": job.queue,
        "args": job.args,
        "meta": job.meta or {},
        "state": state,
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "priority": job.priority,
    }
    _add_times(out, job, state, options)
    if job.timeout_ms:
        out["timeout_ms"] = job.timeout_ms
        if job.timeout_ms % 1000 == 0:  # core's spelling is in whole seconds
            out["timeout"] = job.timeout_ms // 1000
    for name in _VERBATIM:
        if name in options:
            out[name] = options[name]
    if "workflow_id" in options:
        out["workflow_id"] = options["workflow_id"]
        out["parent_results"] = options.get("parent_results", [])
    if job.original_queue is not None:
        out["original_queue"] = job.original_queue
    if job.progress:
        _add_progress(out, job, state)
    if more:
        out |= more
    if job.result is not None:
        out["result"] = job.result
    if job.error is not None:
        out["error"] = with_code(job.error)
    if errors:
        out["errors"] = list(errors)
    for name, value in options.get("extra", {}).items():
        out.setdefault(name, value)
    return out


def workflow_of(options: Mapping[str, Any]) -> UUID | None:
    """Return the workflow of which a job is a step, from its stored options."""
    found = options.get("workflow_id")
    return None if found is None else UUID(found)


def outline(shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON object of a job without its contents, for a caller that may not read it.

    It has all that clients require of a job, so the arguments are empty and not absent.
    """
    return {**{name: shown[name] for name in _OUTLINE}, "args": [], "meta": {}}


def _add_progress(out: dict[str, Any], job: StoredJob, state: str) -> None:
    shown = progress.shown(job.progress, run=job.run, attempt=job.attempt, state=state)
    if shown.progress is not None:
        out["progress"] = shown.progress


def _add_times(out: dict[str, Any], job: StoredJob, state: str, options: dict[str, Any]) -> None:
    if job.created_at is not None:
        out["created_at"] = format_timestamp(job.created_at)
    if job.enqueued_at is not None:
        out["enqueued_at"] = format_timestamp(job.enqueued_at)
    if state == "scheduled" and job.due_at is not None and job.enqueued_at is not None:
        # It was available before, and a limit rescheduled it.
        out["scheduled_at"] = format_timestamp(job.due_at)
    elif "scheduled_at" in options:
        out["scheduled_at"] = options["scheduled_at"]
    elif state == "scheduled" and job.due_at is not None:
        out["scheduled_at"] = format_timestamp(job.due_at)
    if "expires_at" in options:
        out["expires_at"] = options["expires_at"]
    elif job.expires_at is not None:
        out["expires_at"] = format_timestamp(job.expires_at)
    if job.activated_at is not None:
        out["activated_at"] = format_timestamp(job.activated_at)
    if job.started_at is not None:
        out["started_at"] = format_timestamp(job.started_at)
    if state == "retryable" and job.due_at is not None:
        out["next_attempt_at"] = format_timestamp(job.due_at)
    if job.finished_at is None:
        return
    finished = format_timestamp(job.finished_at)
    if state == "completed":
        out["completed_at"] = finished
    elif state == "cancelled":
        out["cancelled_at"] = finished
    elif state == "discarded":
        out["discarded_at"] = finished
        if job.discard_reason in (None, *FAILED_RUN):  # Otherwise no execution was completed.
            out["completed_at"] = finished

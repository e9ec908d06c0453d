"""The data of cron events, under the names of ojs-cron §9 and of ojs-events §4.5."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from django_ojs.spec.failure import clean
from django_ojs.spec.published import MAX_MESSAGE_CHARACTERS, EventType, NewEvent
from django_ojs.spec.times import format_timestamp


class SkipReason(StrEnum):
    """Why an occurrence enqueued no job. ojs-cron defines the first two."""

    OVERLAP = "overlap_skip"
    DST = "dst_skip"
    #: No scheduler ran in time: an earlier occurrence enqueued one job for all that were missed.
    MISSED = "missed"
    #: An enqueue middleware dropped the job.
    DROPPED = "dropped"
    #: The unique policy of the job found another job.
    DUPLICATE = "duplicate"
    #: The job was rejected: it breaks a rule that holds now, or a middleware failed.
    REJECTED = "rejected"


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """What all events of a cron job say about it."""

    name: str
    expression: str
    timezone: str
    queue: str
    job_type: str

    def _event(self, type: EventType, data: Mapping[str, Any]) -> NewEvent:
        which = {
            "cron_name": self.name,
            "cron_expression": self.expression,
            "cron_expr": self.expression,
            "job_type": self.job_type,
            "timezone": self.timezone,
        }
        return NewEvent(type=type, subject=self.name, queue=self.queue, data={**which, **data})

    def triggered(
        self,
        *,
        job_id: UUID,
        job_type: str,
        run_count: int,
        scheduled_at: datetime,
        at: datetime,
        by: str = "",
    ) -> NewEvent:
        """Return the event of an enqueued job. `by` is the operator who asked for it, if any."""
        data = {
            "job_id": str(job_id),
            "job_type": job_type,
            "run_count": run_count,
            "scheduled_time": format_timestamp(scheduled_at),
            "scheduled_at": format_timestamp(scheduled_at),
            "actual_time": format_timestamp(at),
        }
        if by:
            data["triggered_by"] = clean(by, 255)
        return self._event(EventType.CRON_TRIGGERED, data)

    def skipped(
        self,
        reason: SkipReason,
        *,
        scheduled_at: datetime,
        job_id: UUID | None = None,
        message: str = "",
        count: int = 1,
    ) -> NewEvent:
        """Return the event of `count` occurrences without a job; `scheduled_at` is the first.

        `job_id` is the job that is the reason.
        """
        data: dict[str, Any] = {
            "reason": reason.value,
            "scheduled_time": format_timestamp(scheduled_at),
        }
        if job_id is not None:
            data["active_job_id"] = data["existing_job_id"] = str(job_id)
        if message:
            data["message"] = clean(message, MAX_MESSAGE_CHARACTERS)
        if count > 1:
            data["count"] = count
        return self._event(EventType.CRON_SKIPPED, data)

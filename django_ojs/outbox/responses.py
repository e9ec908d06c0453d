"""What a server's answer means for the jobs that were sent."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

#: About the relay, the path or the moment, and not about the job: it waits.
_LATER: Final = frozenset({401, 404, 405, 407, 408, 425, 429})


class Unreachable(Exception):
    """There was no answer. Its text names the kind of failure, and no address or value.

    `retry_after`: seconds to wait, where somebody has said so all the same.
    """

    def __init__(self, told: str, retry_after: float | None = None) -> None:
        super().__init__(told)
        self.retry_after = retry_after


class Verdict(StrEnum):
    """What becomes of the jobs."""

    DELIVERED = "delivered"
    REFUSED = "refused"
    LATER = "later"
    #: Of a batch: one of them is in the way, so each goes by itself.
    ONE_BY_ONE = "one by one"


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """A verdict, and the server's code and message where it has some.

    `room`: how many jobs a queue takes that has no room for all that were sent.
    """

    verdict: Verdict
    code: str = ""
    message: str = ""
    retry_after: float | None = None
    room: int = 0


DELIVERED: Final = Answer(verdict=Verdict.DELIVERED)


def unreachable(error: Unreachable) -> Answer:
    """Return what no answer means: later."""
    return Answer(
        verdict=Verdict.LATER,
        code="unreachable",
        message=f"No answer: {error}.",
        retry_after=error.retry_after,
    )


def read(
    status: int, headers: Mapping[str, str], body: object, job_ids: list[UUID], *, batch: bool
) -> Answer:
    """Judge an answer; `body` is its JSON, None where it is none.

    A 2xx counts only with the job in it, and a 4xx as a refusal only with an error of OJS in it:
    what a proxy on the way says is no server's answer.
    """
    document: Mapping[str, Any] = body if isinstance(body, Mapping) else {}
    if 200 <= status < 300:
        if _confirms(document, job_ids, batch=batch):
            return DELIVERED
        return Answer(
            verdict=Verdict.LATER,
            code="bad_answer",
            message=f"The server answered {status} without the job.",
        )
    found = document.get("error")
    error: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    code = error.get("code")
    known = isinstance(code, str) and bool(code)
    said = Answer(
        verdict=_verdict(status, error if known else {}, job_ids, batch=batch),
        code=str(code) if known else f"http_{status}",
        message=str(error.get("message") or f"The server answered {status}."),
        retry_after=retry_after(headers),
        room=_room(error) if status == 429 else 0,
    )
    return DELIVERED if said.verdict is Verdict.DELIVERED else said


def _verdict(status: int, error: Mapping[str, Any], job_ids: list[UUID], *, batch: bool) -> Verdict:
    if batch:
        # A server without batches may not know the path.
        split = 400 <= status < 500 and (status not in _LATER or status in (404, 405))
        return Verdict.ONE_BY_ONE if split else Verdict.LATER
    if status == 409 and error.get("code") in ("duplicate", "DUPLICATE_JOB"):
        details = error.get("details")
        existing = details.get("existing_job_id") if isinstance(details, Mapping) else None
        # Our own: an earlier attempt arrived. Another one: the job's unique policy refused it.
        return Verdict.DELIVERED if existing in (None, str(job_ids[0])) else Verdict.REFUSED
    if status == 413:
        return Verdict.REFUSED  # Whoever says it: this job does not pass there.
    if 400 <= status < 500 and error and status not in _LATER:
        return Verdict.REFUSED
    if status >= 500 and error.get("retryable") is False:
        return Verdict.REFUSED
    return Verdict.LATER


def _confirms(document: Mapping[str, Any], job_ids: list[UUID], *, batch: bool) -> bool:
    if batch:
        jobs = document.get("jobs")
        if not isinstance(jobs, list) or len(jobs) != len(job_ids):
            return False
        # Another id is that of the job which a unique policy kept; null stands for one that a
        # middleware dropped.
        return all(
            job is None or (isinstance(job, Mapping) and isinstance(job.get("id"), str))
            for job in jobs
        )
    if document.get("deduplicated") is True or document.get("dropped") is True:
        return True
    job = document.get("job", document)
    return isinstance(job, Mapping) and job.get("id") == str(job_ids[0])


def _room(error: Mapping[str, Any]) -> int:
    found = error.get("details")
    # The backpressure document has them flat.
    said = {**error, **(found if isinstance(found, Mapping) else {})}
    depth, bound = said.get("depth"), said.get("bound")
    # A bound in bytes says nothing of jobs.
    if error.get("code") != "QUEUE_FULL" or said.get("unit") is not None:
        return 0
    if type(depth) is not int or type(bound) is not int:
        return 0
    return max(0, bound - depth)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of Retry-After, a number or a date; None where it says nothing."""
    text, date = headers.get("retry-after"), headers.get("date")
    if text is None:
        return None
    if re.fullmatch(r"[0-9]{1,9}", text.strip()):
        return float(text)
    moment = _moment(text)
    if moment is None:
        return None
    # By the server's own clock, where it says what that shows: ours may differ from it.
    now = (_moment(date) if date is not None else None) or datetime.now(UTC)
    return max(0.0, (moment - now).total_seconds())


def _moment(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return None if moment.tzinfo is None else moment

"""Progress of a run (ojs-progress §5, §6): what a worker reports, what is stored, what is shown.

The stored value names its run, so nothing has to be cleared: progress of an earlier run is no
longer shown.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self

from django_ojs.spec import json
from django_ojs.spec.errors import InvalidRequest, PayloadTooLarge, size_details
from django_ojs.spec.states import State
from django_ojs.spec.times import format_timestamp

#: The limit of `data` and checkpoint together; the document recommends 4 KiB for `data`.
MAX_BYTES: Final = 64 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What a worker reports of its run: a fraction of the work, the project's own data, or both.

    A fraction outside 0 to 1 is clamped. `checkpoint` is where another run can continue. Raises
    InvalidRequest, PayloadTooLarge.
    """

    progress: float | None = None
    data: Mapping[str, Any] | None = None
    checkpoint: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.progress is None and self.data is None:
            raise InvalidRequest.of("progress", "or data is required")
        if self.progress is not None:
            object.__setattr__(self, "progress", _share(self.progress))
        for name in ("data", "checkpoint"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, dict):
                raise InvalidRequest.of(name, "must be an object")
            if value is not None:
                json.check(value, name, error=InvalidRequest)
        size = len(json.dumps([self.data, self.checkpoint]).encode())
        if size > MAX_BYTES:
            raise PayloadTooLarge.of(
                "data",
                f"and checkpoint must be at most {MAX_BYTES} bytes of JSON",
                **size_details(size, MAX_BYTES),
            )

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Self:
        """Read a report, also in the form of clients that send a percentage and a message."""
        progress, data, message = (body.get(name) for name in ("progress", "data", "message"))
        for name in ("percentage", "percent"):
            if progress is None and body.get(name) is not None:
                progress = _number(body[name], name, "from 0 to 100") / 100
        if message is not None and not isinstance(message, str):
            raise InvalidRequest.of("message", "must be a string")
        if message is not None and (data is None or isinstance(data, dict)):
            data = {"message": message, **(data or {})}
        return cls(progress=progress, data=data, checkpoint=body.get("checkpoint"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """The progress of a job as shown; all None until its latest run has reported."""

    progress: float | None = None
    data: Mapping[str, Any] | None = None
    updated_at: str | None = None


NOTHING: Final = Progress()


def after(stored: Mapping[str, Any] | None, report: Report, *, run: int, now: datetime) -> Any:
    """Return what to store after a report of this run.

    The fraction never decreases within a run; data is replaced. A checkpoint is stored elsewhere.
    """
    earlier = stored if stored and stored.get("run") == run else {}
    shares = [share for share in (earlier.get("progress"), report.progress) if share is not None]
    kept = {
        "run": run,
        "progress": max(shares, default=None),
        "data": earlier.get("data") if report.data is None else dict(report.data),
        "updated_at": format_timestamp(now),
        # When the latest event of the run's progress was published.
        "told_at": earlier.get("told_at"),
    }
    return {name: value for name, value in kept.items() if value is not None}


def is_stalled(stored: Mapping[str, Any] | None, *, run: int, since: datetime) -> bool:
    """Whether this run's latest report is older than `since`, and this was not published yet."""
    return (
        stored is not None
        and stored.get("run") == run
        and not stored.get("stalled")
        and stored["updated_at"] < format_timestamp(since)
    )


def shown(stored: Mapping[str, Any] | None, *, run: int, attempt: int, state: str) -> Progress:
    """Return the progress of a job as shown.

    A completed job whose run reported has 1.0 (§8.1); a failed one keeps its latest report; a job
    that runs again, or was retried by hand, starts without any (§5.3).
    """
    if not stored or stored.get("run") != run or not attempt:
        return NOTHING
    done = state == State.COMPLETED
    return Progress(
        progress=1.0 if done else stored.get("progress"),
        data=stored.get("data"),
        updated_at=stored.get("updated_at"),
    )


def _share(value: object) -> float:
    return float(min(1, max(0, _number(value, "progress", "from 0.0 to 1.0"))))


def _number(value: object, name: str, bounds: str) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise InvalidRequest.of(name, f"must be a number, {bounds}")
    return value

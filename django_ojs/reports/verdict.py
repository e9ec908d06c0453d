"""One sentence about the whole system: whether jobs run, and what was checked to tell."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from django.utils import timezone

from django_ojs.finding import Severity
from django_ojs.formatting import duration, grouped, number_of
from django_ojs.reports.current_findings import CurrentFindings


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemStatus:
    """`parts` say what was checked, and what could not be found out."""

    level: Literal["good", "fair", "bad"]
    word: str
    parts: Sequence[str]

    def __str__(self) -> str:
        return f"{self.word} · {', '.join(self.parts)}"


def of(found: CurrentFindings, maintained: timedelta | None) -> SystemStatus:
    """Return the status. It is bad if nothing can run, even if nothing is enqueued.

    `maintained` is how long ago a process did the maintenance, if that is known.
    """
    listening, observed = found.queues.listening, found.observed
    parts = []
    is_stopped = found.maintenance is not None and found.maintenance.enabled
    if is_stopped:
        parts.append("in maintenance mode")
    if listening is not None:
        is_stopped = is_stopped or not (listening.running or listening.by_queue)
        parts.append(number_of(listening.running, "worker") if listening.running else "no worker")
        if listening.slots:
            parts.append(f"{grouped(listening.busy)} of {grouped(listening.slots)} slots busy")
    if found.listing is not None and found.oldest is not None:
        oldest = min(found.oldest.values(), default=None)
        parts.append(
            f"oldest ready job {_ago(timezone.now() - oldest)}" if oldest else "no job is ready"
        )
    if observed is not None:
        is_stopped = is_stopped or not observed.is_maintained
        if maintained is not None:
            parts.append(f"maintenance {_ago(maintained)} ago")
        elif not observed.is_maintained:
            parts.append("no maintenance")
        parts += [f"0 {what}" for what in observed.absent]
    if found.unread:
        parts.append(f"not known: {', '.join(found.unread)}")
    incidents = {each.severity for each in found.causes if each.is_incident}
    if is_stopped:
        return SystemStatus(level="bad", word="Not working", parts=parts)
    if incidents:
        level: Literal["fair", "bad"] = "bad" if Severity.CRITICAL in incidents else "fair"
        return SystemStatus(level=level, word="Working, with problems", parts=parts)
    if found.unread:
        return SystemStatus(level="fair", word="Not all is known", parts=parts)
    return SystemStatus(level="good", word="Working", parts=parts)


def _ago(age: timedelta) -> str:
    return duration(max(age, timedelta(0)))

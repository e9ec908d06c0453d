"""What probably caused an incident: what changed shortly before it began.

`KEEP_EVENTS` must have the events of queues and of workers, as it has by default.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from django.utils import timezone

from django_ojs.finding import Finding
from django_ojs.models import Job
from django_ojs.reports import not_running, release_history
from django_ojs.reports.findings import by_kind
from django_ojs.spec.published import EventType, PastEvent
from django_ojs.spec.states import State

#: What happened this long before an incident may have caused it. Its time and that of an event are
#: not of one clock.
_BEFORE: Final = timedelta(minutes=15)
_CLOCKS: Final = timedelta(seconds=1)
#: Incidents whose causes are looked for: the first of each kind, as the overview shows them.
_MOST: Final = 5

_OF_QUEUES: Final = (
    EventType.QUEUE_PAUSED,
    EventType.QUEUE_RESUMED,
    EventType.QUEUE_CONFIG_UPDATED,
)


def with_causes(found: Sequence[Finding]) -> list[Finding]:
    """Return incidents with a sentence on what probably caused the first of each kind.

    `found` are the worst first, each with the time since when it holds.
    """
    first = {kind[0].identity for kind in by_kind(found)[:_MOST]}
    if not first:
        return list(found)
    types = (*_OF_QUEUES, EventType.WORKER_STARTED, EventType.WORKER_STOPPED)
    latest = release_history.read(types)
    return [
        replace(each, cause=_cause(each, latest)) if each.identity in first else each
        for each in found
    ]


def _cause(finding: Finding, latest: Sequence[PastEvent]) -> str:
    assert finding.since is not None
    after, until = finding.since - _BEFORE, finding.since + _CLOCKS
    before = [(time, what) for time, what in _happened(finding, latest) if after <= time <= until]
    if before:
        time, what = max(before)
        moment = f"{timezone.localtime(time):%H:%M:%S}"
        if finding.kind == "queue_paused":
            return f"{what[0].upper()}{what[1:]} at {moment}."
        return f"Probably because {what} at {moment}."
    return _why_it_waits(finding.queue) if finding.kind == "queue_late" else ""


def _happened(finding: Finding, latest: Sequence[PastEvent]) -> Iterator[tuple[datetime, str]]:
    """Yield what may cause an incident of this kind, with the times."""
    if finding.kind == "no_worker":
        for event in latest:
            if event.type == EventType.WORKER_STOPPED:
                how = "died" if event.data.get("reason") == "error" else "shut down"
                yield event.time, f"the worker {event.subject} {how}"
    if not finding.queue:
        return
    # The event of a pause is the pause itself, and tells who made it.
    is_pause = finding.kind == "queue_paused"
    types = (EventType.QUEUE_PAUSED,) if is_pause else _OF_QUEUES
    for event in latest:
        if event.subject == finding.queue and event.type in types:
            yield event.time, _of_queue(event)
    if finding.since is not None and not is_pause:
        changes = release_history.changes(finding.since - _BEFORE, finding.queue, latest)
        for time, release in changes:
            yield time, f"a worker of the release {release} started"


def _of_queue(event: PastEvent) -> str:
    by = event.data.get("paused_by") or event.data.get("resumed_by")
    match event.type:
        case EventType.QUEUE_PAUSED:
            what = f"the queue {event.subject} was paused"
        case EventType.QUEUE_RESUMED:
            what = f"the queue {event.subject} was resumed"
        case _:
            fields = ", ".join(map(str, event.data.get("changed") or ()))
            what = f"the configuration of {event.subject} was changed"
            what += f" ({fields})" if fields else ""
    return f"{what} by {by}" if by else what


def _why_it_waits(queue: str) -> str:
    """Return why the oldest ready job of a queue does not run."""
    ready = Job.primary.filter(queue=queue, state=State.AVAILABLE).order_by("enqueued_at", "pk")
    if (job := ready.first()) is None:
        return ""
    # An incident is shown to people who may see no argument of a job.
    why = not_running.why_not_running(job)
    return f"Its oldest ready job: {why.sentence}" if why else ""

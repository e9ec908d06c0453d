"""What probably caused an incident: what changed shortly before it began.

The events tell what happened, and the audit trail tells who did it. `KEEP_EVENTS` must have the
events of queues and of workers, as it has by default.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from django.utils import timezone

from django_ojs.finding import Finding
from django_ojs.hooks import registry
from django_ojs.models import Job
from django_ojs.reports import not_running, release_history
from django_ojs.reports.findings import by_kind
from django_ojs.spec.published import EventType, PastAct, PastEvent
from django_ojs.spec.queue_config import DEFAULT_POLICY
from django_ojs.spec.states import State

#: What happened within this time before an incident may be its cause. The times of incidents and
#: events are of different clocks, which may differ by `_CLOCKS`.
_BEFORE: Final = timedelta(minutes=15)
_CLOCKS: Final = timedelta(seconds=1)
#: Incidents whose causes are looked for: the first of each kind, as the overview shows them.
_MOST: Final = 5

#: The acts of operators that events of a queue report too.
_OF_QUEUES: Final = {
    EventType.QUEUE_PAUSED: "queue.paused",
    EventType.QUEUE_RESUMED: "queue.resumed",
    EventType.QUEUE_CONFIG_UPDATED: "queue.configured",
}
#: The acts that may keep jobs of any queue waiting.
_OF_ANY_QUEUE: Final = {
    "limit_key.paused": "a limit key was paused",
    "limit_key.overridden": "the limits of a key were changed",
}
#: The findings that may follow from these acts.
_WAITING: Final = frozenset({"queue_late", "queue_full", "queue_nearly_full"})
_WITHOUT_WORKER: Final = frozenset({"no_worker", "queue_unworked"})


def with_causes(found: Sequence[Finding]) -> list[Finding]:
    """Return incidents with a sentence on what probably caused the first of each kind.

    `found` is sorted, worst first; each finding says since when it lasts.
    """
    first = {kind[0].identity for kind in by_kind(found)[:_MOST]}
    if not first:
        return list(found)
    types = (*_OF_QUEUES, EventType.WORKER_STARTED, EventType.WORKER_STOPPED)
    events = release_history.read(types)
    since = min(each.since for each in found if each.identity in first and each.since)
    acts = registry.brought("past_acts", since - _BEFORE)
    return [
        replace(each, cause=_cause(each, events, acts)) if each.identity in first else each
        for each in found
    ]


def _cause(finding: Finding, events: Sequence[PastEvent], acts: Sequence[PastAct]) -> str:
    assert finding.since is not None
    after, until = finding.since - _BEFORE, finding.since + _CLOCKS
    happened = [*_happened(finding, events, acts), *_done(finding, acts)]
    before = [(time, what) for time, what in happened if after <= time <= until]
    if before:
        time, what = max(before)
        moment = f"{timezone.localtime(time):%H:%M:%S}"
        if finding.kind in {"queue_paused", "maintenance"}:
            return f"{what[0].upper()}{what[1:]} at {moment}."
        return f"Probably because {what} at {moment}."
    return _why_it_waits(finding.queue) if finding.kind == "queue_late" else ""


def _happened(
    finding: Finding, events: Sequence[PastEvent], acts: Sequence[PastAct]
) -> Iterator[tuple[datetime, str]]:
    """Yield the events that may cause an incident of this kind, with their times."""
    if finding.kind == "no_worker":
        for event in events:
            if event.type == EventType.WORKER_STOPPED:
                how = "died" if event.data.get("reason") == "error" else "shut down"
                yield event.time, f"the worker {event.subject} {how}"
    if not finding.queue:
        return
    # A paused queue has no other cause than its pause.
    is_pause = finding.kind == "queue_paused"
    types = (EventType.QUEUE_PAUSED,) if is_pause else _OF_QUEUES
    for event in events:
        # A finding about a type is about its handler, which no pause or bound makes fail or slow.
        if event.subject == finding.queue and event.type in types and not finding.type:
            yield event.time, _of_queue(event, acts)
    if finding.since is not None and not is_pause:
        changes = release_history.changes(finding.since - _BEFORE, finding.queue, events)
        for time, release in changes:
            yield time, f"a worker of the release {release} started"


def _of_queue(event: PastEvent, acts: Sequence[PastAct]) -> str:
    by = event.data.get("paused_by") or event.data.get("resumed_by") or _who_did(event, acts)
    match event.type:
        case EventType.QUEUE_PAUSED:
            what = f"the queue {event.subject} was paused"
        case EventType.QUEUE_RESUMED:
            what = f"the queue {event.subject} was resumed"
        case _:
            what = _configured(event.subject, event.data.get("changed") or ())
    return f"{what} by {by}" if by else what


def _who_did(event: PastEvent, acts: Sequence[PastAct]) -> str:
    """Return the operator of the act that was stored in the same transaction as the event."""
    action = _OF_QUEUES[event.type]
    return next(
        (
            act.by
            for act in acts
            if (act.action, act.subject) == (action, event.subject)
            and abs(act.time - event.time) <= _CLOCKS
        ),
        "",
    )


def _configured(queue: str, fields: Iterable[object]) -> str:
    named = ", ".join(map(str, fields))
    of = "all queues" if queue == DEFAULT_POLICY else queue
    return f"the configuration of {of} was changed" + (f" ({named})" if named else "")


def _done(finding: Finding, acts: Sequence[PastAct]) -> Iterator[tuple[datetime, str]]:
    """Yield the acts that no event reports, with their times."""
    for act in acts:
        what = ""
        if act.action == "maintenance.started" and finding.kind == "maintenance":
            what = "it was switched on"
        elif act.action == "worker.directed" and finding.kind in _WITHOUT_WORKER:
            # A change of its slots is not a directive.
            directive = act.changes.get("directive")
            what = f"the worker {act.subject} was told to {directive}" if directive else ""
        elif finding.kind in _WAITING and act.action in _OF_ANY_QUEUE:
            # The key is not named, because people who may not see arguments may see incidents.
            what = _OF_ANY_QUEUE[act.action]
        elif finding.kind in _WAITING and act.subject == DEFAULT_POLICY:
            what = _configured(DEFAULT_POLICY, act.changes)
        if what:
            yield act.time, f"{what} by {act.by}"


def _why_it_waits(queue: str) -> str:
    """Return why the oldest ready job of a queue does not run."""
    ready = Job.primary.filter(queue=queue, state=State.AVAILABLE).order_by("enqueued_at", "pk")
    if (job := ready.first()) is None:
        return ""
    # People who may not see arguments may see incidents.
    why = not_running.why_not_running(job)
    return f"Its oldest ready job: {why.sentence}" if why else ""

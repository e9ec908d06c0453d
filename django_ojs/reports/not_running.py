"""Why a job does not run: one sentence for operators, and what would mend it.

It reads some rows, and at most `MOST_BEFORE` of the jobs before it.
"""

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

from django.db.models import Count, Q
from django.utils import timezone

from django_ojs import formatting, hooks
from django_ojs.claim_rules import Waits
from django_ojs.conf import settings
from django_ojs.extension import WantedEvents
from django_ojs.hooks import registry
from django_ojs.models import Job, Queue
from django_ojs.not_installed import name_of
from django_ojs.operations.maintenance import mode
from django_ojs.operations.maintenance.mode import MaintenanceStatus
from django_ojs.operations.workers import registry as workers
from django_ojs.reports import queue_overview
from django_ojs.spec.failure import UNKNOWN_JOB_TYPE
from django_ojs.spec.hold import FIRST_HELD, numbers_of, owner_of
from django_ojs.spec.isolation import ISOLATED_AFTER
from django_ojs.spec.published import EventType
from django_ojs.spec.states import TERMINAL, State
from django_ojs.storage import holds, queue_configs

#: The most jobs before it in its queue that are counted.
MOST_BEFORE: Final = 10_000
#: The most workers of a queue whose jobs are read, and the most queues of these jobs to name.
_MOST_WORKERS: Final = 100
_MOST_NAMED: Final = 5
#: The latest events of a queue, among which its pause is found.
_MOST_EVENTS: Final = 200

# A worker of a newer release may have an extension that this process lacks.
_REPAIR: Final = (
    "If no worker has the extension any more, let the jobs run without it: manage.py ojs doctor "
    "--only remains --repair."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class NotRunning:
    """Why a job does not run now. `kind`, or the rule that holds it, decides what mends it."""

    kind: str
    sentence: str
    waits: Waits | None = None


def why_not_running(job: Job, *, may_see: bool = False) -> NotRunning | None:
    """Return why a job does not run, or None if it runs or has ended.

    `may_see` is whether the reader may see arguments of jobs.
    """
    state = State(job.state)
    if state is State.ACTIVE or state in TERMINAL:
        return None
    if state is State.PENDING:
        return NotRunning(kind="pending", sentence="It waits until it is activated.")
    if state is State.AVAILABLE:
        return _blocked(job) or _in_line(job, may_see)
    return _not_due(job)


def _not_due(job: Job) -> NotRunning:
    """Return why a scheduled or retryable job does not run: its time, and what else stops it."""
    blocked = _blocked(job)
    late = None if job.due_at is None else (timezone.now() - job.due_at).total_seconds()
    duration = formatting.duration(abs(late or 0))
    if late is None or late <= 0:
        if (waits := hooks.waits_for([job]).get(job.pk)) is not None:
            return NotRunning(kind="due", sentence=waits)
        due = f"It is due in {duration}"
        if job.state == State.SCHEDULED and job.enqueued_at is not None:
            due = f"It was rescheduled at its limit. {due}"
        if blocked is None:
            return NotRunning(kind="due", sentence=f"{due}, at {_time(job.due_at)}.")
    else:
        due = f"It was due {duration} ago"
        if blocked is None:
            sentence = f"{due}, and waits for the maintenance of a worker to make it available."
            return NotRunning(kind="overdue", sentence=sentence)
    return NotRunning(kind=blocked.kind, sentence=f"{due}. {blocked.sentence}")


def _blocked(job: Job) -> NotRunning | None:
    """Return what stops the whole queue or the type of the job."""
    maintenance = mode.status()
    if maintenance.enabled:
        return NotRunning(kind="maintenance", sentence=_in_maintenance(maintenance))
    paused_at = Queue.primary.filter(pk=job.queue).values_list("paused_at", flat=True).first()
    if paused_at is not None:
        sentence = f"The queue {job.queue} is paused {_since(paused_at)}"
        if user := _paused_by(job.queue):
            sentence = f"{sentence}, by {user}"
        return NotRunning(kind="paused", sentence=f"{sentence}.")
    if missing := hooks.missing_rules(queue_configs.rules_of(job.queue)):
        names = ", ".join(map(name_of, numbers_of(missing)))
        sentence = (
            f"The queue {job.queue} has a rule of an extension that is not installed here, or that "
            f"has no rule ({names}). A worker without the rule takes no job of it. {_REPAIR}"
        )
        return NotRunning(kind="unruled", sentence=sentence)
    if isinstance(job.error, dict) and job.error.get("type") == UNKNOWN_JOB_TYPE:
        sentence = f"The last worker that took it has no handler for {job.type}, and postponed it."
        return NotRunning(kind="unknown_type", sentence=sentence)
    if not queue_overview.is_worked(job.queue):
        if (pool := settings().pool_of_queue.get(job.queue)) is not None:
            sentence = (
                f"Only workers of the pool {pool} get jobs of the queue {job.queue}, and none is "
                f"running. Start one: manage.py ojs_worker --pool {pool}."
            )
            return NotRunning(kind="unworked_pool", sentence=sentence)
        return NotRunning(
            kind="unworked",
            sentence=f"No worker takes jobs from the queue {job.queue}.",
        )
    return None


def _in_maintenance(maintenance: MaintenanceStatus) -> str:
    reason = (maintenance.reason or "").rstrip(".")
    text = "Maintenance mode is on"
    if maintenance.enabled_at is not None:
        text = f"{text} {_since(maintenance.enabled_at)}"
    return f"{text}: {reason}." if reason else f"{text}."


def _in_line(job: Job, may_see: bool) -> NotRunning:
    """Return why an available job does not run, such as the jobs before it in its queue."""
    if job.lost_with_others >= ISOLATED_AFTER:
        return NotRunning(
            kind="alone",
            sentence=(
                "It was lost with several workers that died, so it waits for a process of its "
                "own: a worker with a supervisor starts one."
            ),
        )
    for name, rule in registry.named_rules():
        ask = partial(rule.waits_for, job, may_see)
        waits = hooks.contained(name, "failed to say why a job waits", ask, None)
        if waits is not None:
            return NotRunning(kind=waits.kind, sentence=waits.sentence, waits=waits)
    if job.hold >= FIRST_HELD or job.hold not in holds.owned():
        return NotRunning(kind="held", sentence=_held(job.hold))
    if others := _others_first(job.queue):
        return NotRunning(kind="starved", sentence=others)
    before = _before(job)
    if not before:
        return NotRunning(
            kind="waits",
            sentence=(
                "It is the next job of its queue: a worker takes it as soon as a slot is free."
            ),
        )
    flow = queue_overview.flows([job.queue]).get(job.queue)
    minutes = (
        min(before, MOST_BEFORE) / flow.went_per_minute if flow and flow.went_per_minute else 0
    )
    return NotRunning(kind="waits", sentence=_place(before, minutes))


def _others_first(queue: str) -> str:
    """Return a sentence if jobs of other queues have all slots of the workers of a queue, or ""."""
    listening = workers.listening(queue, limit=_MOST_WORKERS)
    ids = [each.worker.pk for each in listening.workers]
    active = Job.primary.filter(state=State.ACTIVE, worker_id__in=ids).order_by()
    running = dict(active.values_list("queue").annotate(number=Count("pk")))
    if queue in running or not 0 < listening.slots <= sum(running.values()):
        return ""
    slots = formatting.number_of(listening.slots, "slot")
    names = ", ".join(sorted(running, key=lambda name: -running[name])[:_MOST_NAMED])
    return (
        f"The workers of the queue {queue} have {slots}, and run only jobs of other queues: "
        f"{names}. A worker with the order strict takes the jobs of a queue when those before it "
        "have none."
    )


def _held(hold: int) -> str:
    """Return which extension keeps a job from claims."""
    number = owner_of(hold)
    for extension in registry.extensions():
        if extension.number == number and hold in holds.owned():
            return f"The extension {extension.name} holds it."
    return (
        "It is held for an extension that is not installed, or that holds no jobs "
        f"({name_of(number)}). {_REPAIR}"
    )


def _place(before: int, minutes: float) -> str:
    """Return a sentence about the jobs before one, with the time that they take if it is known."""
    found = f"{formatting.grouped(min(before, MOST_BEFORE))} jobs of its queue are before it"
    take, duration = "take", f"≈ {formatting.duration(minutes * 60)}"
    if before > MOST_BEFORE:
        found, duration = f"More than {found}", f"more than {duration}"
    elif before == 1:
        found, take = "One job of its queue is before it", "takes"
    return f"{found}, which {take} {duration}." if minutes else f"{found}."


def _before(job: Job) -> int:
    """Return how many jobs are claimed before it, up to one more than `MOST_BEFORE`."""
    # Jobs that are held do not keep it from running.
    available = Job.primary.filter(
        queue=job.queue, state=State.AVAILABLE, hold__lt=FIRST_HELD
    ).order_by()
    same = Q(enqueued_at__lt=job.enqueued_at) | Q(enqueued_at=job.enqueued_at, pk__lt=job.pk)
    higher = available.filter(priority__gt=job.priority)[: MOST_BEFORE + 1].count()
    if higher > MOST_BEFORE:
        return higher
    left = MOST_BEFORE + 1 - higher
    return higher + available.filter(same, priority=job.priority)[:left].count()


def _paused_by(queue: str) -> str:
    wanted = WantedEvents(
        types=(EventType.QUEUE_PAUSED,), limit=1, subject=queue, among=_MOST_EVENTS
    )
    for event in registry.brought("past_events", wanted):
        return str(event.data.get("paused_by") or "")
    return ""


def _since(moment: datetime) -> str:
    return f"since {_time(moment)}, for {formatting.duration(timezone.now() - moment)}"


def _time(moment: datetime | None) -> str:
    return formatting.absolute_time(moment) or formatting.DASH

"""Jobs in every state, made by the operations themselves, and a clock that tests can turn."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID

from django.db import connection, connections
from django.db.models import F, QuerySet
from django.db.models.functions import Now
from django.utils import timezone
from factory import Factory, LazyFunction

from django_ojs.extensions.limits.limit_key_use import KeyOfJob
from django_ojs.extensions.limits.models import LimitCheck
from django_ojs.extensions.outbox import operations as outbox
from django_ojs.models import Attempt, Job, Lease, Worker
from django_ojs.operations import ack, beat, cancel, fail, fetch
from django_ojs.operations import push as pushing
from django_ojs.operations.beat import Registration
from django_ojs.operations.enqueue.admission import admit
from django_ojs.operations.enqueue.result import EnqueuedJob, Outcome
from django_ojs.operations.push import PushOptions
from django_ojs.operations.workers.rescue import DeadWorkers
from django_ojs.spec import ids
from django_ojs.spec.envelope import Envelope
from django_ojs.spec.failure import Failure
from django_ojs.spec.full_policy import LOCAL
from django_ojs.spec.retry_policy import RetryPolicy
from django_ojs.spec.states import State
from django_ojs.storage import database, queue_configs
from django_ojs.storage.claimed_job import Claimed
from django_ojs.storage.transitions import Claim

WORKER = "worker-a"
BOOM = Failure(type="Boom", message="it broke")
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
#: One hour after each failure, without jitter.
HOURLY = {"initial_interval": HOUR, "max_interval": HOUR, "jitter": False}

#: For a batch whose ids were made here.
GENERATED = PushOptions(batch=True, generated_ids=True)

#: How `push_on_road` pushes; the fixture `either_road` changes it.
ROAD = [pushing.ONE]

_queues = count()
#: When the latest job became available.
_latest = datetime.fromtimestamp(0, UTC)


class EnvelopeFactory(Factory[Envelope]):
    """An envelope, by default of a queue that no other job is in."""

    class Meta:
        model = Envelope

    type = "test.job"
    # Tests push in threads, which could get the same number of a Sequence.
    queue = LazyFunction(lambda: f"q{next(_queues)}")


class WorkerFactory(Factory[Worker]):
    """A worker that has beaten; what it registers with may be given field by field."""

    class Meta:
        model = Worker

    id = WORKER

    @classmethod
    def _create(cls, model_class: type[Worker], *, id: str, **values: Any) -> Worker:
        names = {field.name for field in fields(Registration)} & values.keys()
        if names:
            values["registration"] = Registration(**{name: values.pop(name) for name in names})
        beat.beat(id, **values)
        return model_class.primary.get(pk=id)


def jobs() -> QuerySet[Job]:
    """Return all stored jobs."""
    return Job.primary.all()


def jobs_of_key(key: str) -> QuerySet[Job]:
    """Return the stored jobs with a limit key."""
    return Job.primary.alias(key=KeyOfJob()).filter(key=key)


def hourly(max_attempts: int = 3, **values: Any) -> RetryPolicy:
    """Build a policy whose waits are known."""
    return RetryPolicy(max_attempts=max_attempts, **(HOURLY | values))


def push(**values: Any) -> Job:
    """Store a job as its client would."""
    (job,) = in_line([pushing.push(EnvelopeFactory(**values))])
    return job


def push_limited(
    key: str = "acme", number: int = 1, queue: str = "carrier", **policy: Any
) -> list[Job]:
    """Store jobs of a limit key one by one."""
    return [push(queue=queue, rate_limit={"key": key, **policy}) for _ in range(number)]


def push_on_road(**values: Any) -> EnqueuedJob:
    """Store a job by the road that the test takes, and return the result."""
    return pushing.push(EnvelopeFactory(**values), *ROAD)


def checks_are_due() -> None:
    """Let the limits be checked that are due now, though the clock is set back by a moment."""
    soon = LimitCheck.primary.filter(due_at__lte=Now() + timedelta(seconds=1))
    soon.update(due_at=F("due_at") - MINUTE)


def claim_limited() -> list[Claimed]:
    """FETCH what the limits let start now of what `push_limited` has stored."""
    checks_are_due()
    return fetch.fetch(["carrier"], count=100, worker_id=WORKER)


def push_many(number: int, **values: Any) -> list[Job]:
    """Store jobs of one queue in one batch."""
    values.setdefault("queue", EnvelopeFactory().queue)
    return in_line(pushing.push_batch(EnvelopeFactory.create_batch(number, **values)))


def in_line(stored: Iterable[EnqueuedJob]) -> list[Job]:
    """Let jobs come after those before them, though the machine's clock was set back a moment.

    First come, first served is by the clock. The one of a virtual machine is set back now and then,
    by milliseconds, and no test is about that unless it says so.
    """
    global _latest
    found = []
    is_alone = threading.current_thread() is threading.main_thread()
    for one in stored:
        job = one.model()
        if is_alone and job.enqueued_at is not None and one.outcome is Outcome.STORED:
            if timedelta(0) < _latest - job.enqueued_at < timedelta(seconds=1):
                job.enqueued_at = _latest + timedelta(microseconds=1)
                free = Job.primary.filter(pk=job.pk, state=State.AVAILABLE)
                free.update(enqueued_at=job.enqueued_at)
            _latest = job.enqueued_at
        found.append(job)
    return found


def until_later() -> None:
    """Return once the clock of each database shows a later time: SQLite's has milliseconds."""
    began = timezone.now()
    while timezone.now() - began < timedelta(milliseconds=1):
        pass


def is_duplicate(job: EnqueuedJob) -> bool:
    """Whether a unique policy ignored it."""
    return job.outcome is Outcome.DUPLICATE


def put(wanted: Envelope, destination: str = LOCAL, *, using: str | None = None) -> EnqueuedJob:
    """Put a job into the outbox, as an enqueue does."""
    (admitted,) = admit([wanted], queue_configs.current(), batch=False)
    assert admitted is not None
    (job,) = outbox.add(
        [admitted], [destination], using=using or database.alias(), generated_ids=False
    )
    return job


def claim(job: Job, worker_id: str | None = WORKER) -> Claimed:
    """FETCH a job that is the first of its queue."""
    (claimed,) = fetch.fetch([job.queue], worker_id=worker_id, due=False)
    assert claimed.id == job.pk
    return claimed


def held(claimed: Claimed) -> Claim:
    """Return the whole claim on a job."""
    return Claim(worker_id=claimed.worker_id, attempt=claimed.attempt, run=claimed.run)


def active(worker_id: str | None = WORKER, **values: Any) -> Claimed:
    """Build a job that a worker runs."""
    return claim(push(**values), worker_id)


def in_state(state: State | str, **values: Any) -> Job:
    """Build a job in a state, by the way jobs get there."""
    match State(state):
        case State.AVAILABLE:
            job = push(**values)
        case State.SCHEDULED:
            job = push(scheduled_at=HOUR, **values)
        case State.PENDING:
            job = push(pending=True, **values)
        case State.CANCELLED:
            job = cancel.cancel(push(**values).pk)[0]
        case State.ACTIVE:
            job = read(active(**values).id)
        case State.COMPLETED:
            job = ack.ack(active(**values).id, result={"done": True})
        case State.RETRYABLE:
            job = fail.fail(active(**values).id, BOOM)
        case State.DISCARDED:
            job = fail.fail(active(**({"retry": hourly(1)} | values)).id, BOOM)
    assert job.state == state
    return job


def read(job_id: UUID) -> Job:
    """Read a job again."""
    return Job.primary.get(pk=job_id)


def snapshot(job_id: UUID) -> dict[str, Any]:
    """Return all that is stored about a job, to see that nothing was changed."""
    alias = database.alias()
    return {
        "job": Job.primary.filter(pk=job_id).values().get(),
        "attempts": list(Attempt.objects.using(alias).filter(job_id=job_id).values()),
    }


_TIMES = (
    "created_at",
    "enqueued_at",
    "due_at",
    "expires_at",
    "activated_at",
    "started_at",
    "lease_until",
    "finished_at",
)


def age(job_id: UUID | Iterable[UUID], seconds: float | timedelta) -> None:
    """Make jobs older: shift all their times into the past, so that no test needs to wait."""
    by = seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)
    keys = [job_id] if isinstance(job_id, UUID) else list(job_id)
    Job.primary.filter(pk__in=keys).update(**{name: F(name) - by for name in _TIMES})


def age_all(by: timedelta) -> None:
    """Let time pass for every job."""
    Job.primary.update(**{name: F(name) - by for name in _TIMES})


def silence(worker_id: str, by: timedelta = MINUTE) -> None:
    """Let the last request of a worker be longer ago."""
    workers = Worker.primary.filter(pk=worker_id)
    workers.update(seen_at=F("seen_at") - by, beat_at=F("beat_at") - by)


def age_lease(name: str, by: timedelta = MINUTE) -> None:
    """Let a lease be older."""
    Lease.primary.filter(name=name).update(until=F("until") - by)


@contextmanager
def steady() -> Iterator[None]:
    """Let another worker's heartbeats be stored all along: so the silence of others counts."""
    long_ago = timedelta(days=1000)
    times = {"seen_at": Now(), "beat_at": Now(), "steady_since": Now() - long_ago}
    lasting = {"beat_interval_ms": HOUR // timedelta(milliseconds=1), "dead_after_ms": 2**40}
    Worker.primary.create(id="steady", **times, **lasting)
    try:
        yield
    finally:
        Worker.primary.filter(pk="steady").delete()


def take_back_dead(dead: DeadWorkers | None = None) -> int:
    """Look for dead workers as often as it takes, while the database stores heartbeats."""
    dead = dead or DeadWorkers()
    with steady():
        return sum(dead.take_back() for _ in range(2))


def ids_against_time(number: int) -> list[UUID]:
    """Return client-made ids that sort against the order in which they are used."""
    return list(reversed(ids.many(number)))


@contextmanager
def connected_to(settings: Mapping[str, Any]) -> Iterator[None]:
    """Connect the default alias with these settings: another server, or a pooler."""
    ours = connection.settings_dict
    kept = dict(ours)
    connection.close()
    ours.update(settings)
    try:
        yield
    finally:
        connection.close()
        ours.update(kept)


@contextmanager
def own_connections() -> Iterator[None]:
    """Close what a test's thread has opened."""
    try:
        yield
    finally:
        connections.close_all()

"""The jobs of a test in the modes fake and inline: in memory, without a database."""

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.dispatch import Signal
from django.utils import timezone

from django_ojs import signals
from django_ojs.conf import settings
from django_ojs.context import JobContext
from django_ojs.models import Attempt, Job, Workflow
from django_ojs.models.attempt import AttemptOutcome
from django_ojs.operations.enqueue import defaults, outbox
from django_ojs.operations.enqueue.admission import admit
from django_ojs.operations.enqueue.result import EnqueuedJob, Outcome, of_row
from django_ojs.operations.fail import decide
from django_ojs.spec import json
from django_ojs.spec.checkpoint import SavedCheckpoint, encode
from django_ojs.spec.envelope import Envelope
from django_ojs.spec.errors import ClaimLost, Conflict, DuplicateJob, JobNotFound
from django_ojs.spec.failure import Failure
from django_ojs.spec.progress import Report, after
from django_ojs.spec.states import TERMINAL, State, Trigger, allows
from django_ojs.spec.unique_policy import UniquePolicy
from django_ojs.spec.workflow import Graph
from django_ojs.storage import database, queue_configs
from django_ojs.storage.claims import Claimed
from django_ojs.storage.dialects.rows import Stored
from django_ojs.testing.memory_workflows import MemoryWorkflows
from django_ojs.testing.store import UNKNOWN_TYPE
from django_ojs.worker.in_flight import Run


class MemoryStore:
    """Jobs as unsaved models. Bounds, offloading, pausing and leases do not exist here."""

    def __init__(self) -> None:
        self.results: list[EnqueuedJob] = []
        self._lock = threading.RLock()
        self._jobs: dict[UUID, Job] = {}
        self._checkpoints: dict[UUID, SavedCheckpoint] = {}
        self._attempts: defaultdict[UUID, list[Attempt]] = defaultdict(list)
        self._workflows = MemoryWorkflows(self._push_steps, lambda key: self._jobs.get(key))

    def push(
        self,
        envelopes: Sequence[Envelope],
        *,
        batch: bool,
        store: Callable[[], list[EnqueuedJob]],
    ) -> list[EnqueuedJob]:
        admitted = admit_in_memory(envelopes, batch=batch)
        defaults.fill_in([each for each in admitted if each is not None], None)
        with self._lock:
            before = {key: _copy(job) for key, job in self._jobs.items()}
            try:
                results = [
                    _dropped(envelope) if passed is None else self._add(passed)
                    for envelope, passed in zip(envelopes, admitted, strict=True)
                ]
            except DuplicateJob:
                self._jobs = before  # All or none.
                raise
            self.results += results
        for result in results:
            if result.outcome is Outcome.STORED:
                self._send(signals.job_enqueued, self._jobs[result.id])
        return results

    def _push_steps(self, envelopes: Sequence[Envelope]) -> list[EnqueuedJob]:
        return self.push(envelopes, batch=True, store=list)

    def _add(self, envelope: Envelope) -> EnqueuedJob:
        self._apply_due()
        if envelope.id in self._jobs:
            details = {"existing_job_id": str(envelope.id)}
            raise DuplicateJob("A job with this id exists already.", details=details)
        destination = outbox.route(envelope)
        if destination is None and envelope.unique is not None:
            existing = self._resolve(envelope, envelope.unique)
            if existing is not None:
                return of_row(existing, Outcome.DUPLICATE)
        return self.insert(envelope, destination)

    def insert(self, envelope: Envelope, destination: str | None = None) -> EnqueuedJob:
        """Keep a job that was admitted; not one for another destination."""
        now = timezone.now()
        due = _moment(envelope.scheduled_at, now)
        is_late = due is not None and due > now
        state = State.SCHEDULED if is_late else State.AVAILABLE
        if envelope.pending or destination is not None:
            state = State.PENDING
        result = EnqueuedJob(
            id=envelope.id,
            type=envelope.type,
            queue=envelope.queue,
            state=state,
            outcome=Outcome.STORED if destination is None else Outcome.OUTBOX,
            destination=destination,
            envelope=envelope,
            stored=Stored(
                id=envelope.id,
                state=state,
                created_at=now,
                enqueued_at=now if state is State.AVAILABLE else None,
                due_at=due if is_late else None,
                expires_at=_moment(envelope.expires_at, now),
                size_bytes=0,
            ),
        )
        if destination is None:
            self._jobs[envelope.id] = result.model()
        return result

    def _resolve(self, envelope: Envelope, policy: UniquePolicy) -> Job | None:
        """Return the job of which this one is a duplicate; cancel those that it replaces."""
        replaces = policy.on_conflict.startswith("replace")
        states = set(policy.states) - (TERMINAL if replaces else set())
        since = None if policy.period is None else timezone.now() - policy.period
        held = [
            job
            for job in reversed(self._jobs.values())
            if job.unique_key == envelope.unique_key
            and job.state in states
            and (since is None or job.created_at > since)
        ]
        if not held:
            return None
        if policy.on_conflict == "ignore":
            return held[0]
        if not replaces:
            details = {
                "existing_job_id": str(held[0].pk),
                "existing_job_state": held[0].state,
                "unique_key": envelope.unique_key,
            }
            raise DuplicateJob("A job with the same unique key exists already.", details=details)
        scheduled = [job.due_at for job in held if job.state == State.SCHEDULED and job.due_at]
        if policy.on_conflict == "replace_except_schedule" and scheduled:
            envelope.scheduled_at, envelope.scheduled_at_text = min(scheduled), None
        for job in held:
            self._end(job, Trigger.CANCEL, State.CANCELLED)
        return None

    def jobs(self) -> list[Job]:
        with self._lock:
            self._apply_due()
            return [_copy(job) for job in self._jobs.values()]

    def read(self, job_id: UUID) -> Job:
        with self._lock:
            return _copy(self._get(job_id))

    def get(self, job_id: UUID) -> Job | None:
        return self.read(job_id)

    def attempts(self, job_id: UUID) -> list[Attempt]:
        with self._lock:
            return list(self._attempts[job_id])

    def create_workflow(self, graph: Graph, queues: Sequence[str]) -> Workflow:
        return self._workflows.create(graph, queues)

    def workflow(self, workflow_id: UUID) -> Workflow:
        return self._workflows.get(workflow_id)

    def step_ids(self, workflow_id: UUID) -> list[UUID]:
        return self._workflows.step_ids(workflow_id)

    def cancel_workflow(self, workflow_id: UUID) -> Workflow:
        for job_id in self._workflows.cancel(workflow_id):
            if job_id in self._jobs and self._jobs[job_id].state not in TERMINAL:
                self.cancel(job_id)
        return self._workflows.get(workflow_id)

    def advance_workflows(self) -> None:
        self._workflows.advance()

    def clear(self) -> None:
        with self._lock:
            self._workflows.clear()
            self._jobs.clear()
            self._attempts.clear()
            self._checkpoints.clear()
            self.results.clear()

    def cancel(self, job_id: UUID) -> tuple[Job, State]:
        """Cancel a job, and return it with its previous state. Raises as `ojs.cancel` does."""
        with self._lock:
            job = self._get(job_id)
            before = State(job.state)
            if before is not State.CANCELLED:
                self._end(job, Trigger.CANCEL, State.CANCELLED)
            return _copy(job), before

    def claim(
        self, queue: str | None, early: Sequence[State], *, only: UUID | None = None
    ) -> Claimed | None:
        """Claim the next job, or `only` this one."""
        with self._lock:
            self._apply_due()
            jobs = [
                job
                for job in self._jobs.values()
                if queue in (None, job.queue) and only in (None, job.pk)
            ]
            available = [job for job in jobs if job.state == State.AVAILABLE]
            if available:
                chosen = min(available, key=lambda job: (-job.priority, job.enqueued_at))
            else:
                waiting = [
                    job
                    for job in jobs
                    if job.state in early and (job.error or {}).get("type") != UNKNOWN_TYPE.type
                ]
                if not waiting:
                    return None
                chosen = min(waiting, key=lambda job: job.due_at or job.created_at)
                self._make_available(chosen)
            self._change(chosen, Trigger.FETCH, State.ACTIVE)
            chosen.started_at = timezone.now()
            chosen.attempt += 1
            chosen.run += 1
            job = claimed(chosen)
            job.checkpoint = self._checkpoints.get(job.id)
            return job

    def context_of(self, job: Claimed, *, is_async: bool) -> JobContext:
        return JobContext(job, is_async=is_async, report=self._report, save=self._save)

    def _report(self, job: Claimed, reported: Report) -> bool:
        with self._lock:
            stored = self._get(job.id)
            if stored.state != State.ACTIVE or stored.run != job.run:
                return False
            stored.progress = after(stored.progress, reported, run=job.run, now=timezone.now())
            if reported.checkpoint is not None:
                self._save(job, dict(reported.checkpoint))
            return True

    def _save(self, job: Claimed, state: json.JSON) -> None:
        text = encode(state)
        with self._lock:
            stored = self._get(job.id)
            if stored.state != State.ACTIVE or stored.run != job.run:
                raise ClaimLost("The job is no longer active under this claim.")
            before = self._checkpoints.get(job.id)
            self._checkpoints[job.id] = SavedCheckpoint(
                state=json.loads(text),
                sequence=1 if before is None else before.sequence + 1,
                created_at=timezone.now(),
            )

    def complete(self, run: Run, result: Any, *, committed: bool) -> None:
        with self._lock:
            job = self._get(run.job.id)
            self._end(job, Trigger.ACK, State.COMPLETED)
            job.result, job.error = json.loads(json.dumps(result)), None
        self._send(signals.job_completed, job)

    def complete_atomic(self, job_id: UUID, **values: Any) -> None:
        """Check the transaction; `complete` follows, since a job in memory cannot roll back."""
        # The first statement of a worker says that the transaction will be rolled back.
        database.connection().validate_no_broken_transaction()

    def fail(self, run: Run, failure: Failure) -> Job:
        with self._lock:
            job = self._get(run.job.id)
            self._attempts[job.pk].append(
                Attempt(
                    job_id=job.pk,
                    attempt=job.attempt,
                    run=job.run,
                    worker_id=job.worker_id,
                    outcome=AttemptOutcome.FAILED,
                    started_at=job.started_at,
                    finished_at=timezone.now(),
                    error=failure.render(),
                )
            )
            decision = decide(job, failure)
            if pause := failure.pause:
                self._wait(job, pause)
                job.returned += 1
                follow_up = signals.job_returned
            elif decision.action == "retry":
                self._wait(job, decision.delay)
                follow_up = signals.job_retrying
            else:
                self._end(job, Trigger.FAIL, State.DISCARDED)
                job.dead_letter, job.discard_reason = decision.dead_letter, decision.reason
                follow_up = signals.job_discarded
            job.error = failure.render()
        if follow_up is signals.job_returned:
            self._send(follow_up, job)
            return _copy(job)
        self._send(signals.job_failed, job, failure=failure)
        self._send(follow_up, job, failure=failure)
        return _copy(job)

    def postpone(self, run: Run) -> None:
        with self._lock:
            job = self._get(run.job.id)
            self._wait(job, settings().unknown_type_delay)
            job.returned += 1
            job.error = UNKNOWN_TYPE.render()

    def promote(self) -> None:
        with self._lock:
            self._apply_due()

    def _apply_due(self) -> None:
        now = timezone.now()
        for job in self._jobs.values():
            if job.expires_at is not None and job.expires_at <= now:
                if allows(Trigger.EXPIRE, State(job.state), State.DISCARDED):
                    self._end(job, Trigger.EXPIRE, State.DISCARDED)
                    job.discard_reason = "expired"
            elif job.state in (State.SCHEDULED, State.RETRYABLE) and _due(job) <= now:
                self._make_available(job)

    def _make_available(self, job: Job) -> None:
        self._change(job, Trigger.TIMER, State.AVAILABLE)
        job.enqueued_at = timezone.now()

    def _wait(self, job: Job, delay: timedelta) -> None:
        self._change(job, Trigger.FAIL, State.RETRYABLE)
        job.due_at = timezone.now() + delay

    def _end(self, job: Job, trigger: Trigger, state: State) -> None:
        self._change(job, trigger, state)
        job.finished_at = timezone.now()
        if state is not State.DISCARDED:
            self._checkpoints.pop(job.pk, None)

    def _change(self, job: Job, trigger: Trigger, state: State) -> None:
        if not allows(trigger, State(job.state), state):
            raise Conflict(f"The job is {job.state}; {trigger} cannot make it {state}.")
        job.state = state.value

    def _get(self, job_id: UUID) -> Job:
        if job_id not in self._jobs:
            raise JobNotFound.with_id(job_id)
        return self._jobs[job_id]

    def _send(self, signal: Signal, job: Job, **details: Any) -> None:
        if signal.has_listeners(Job):
            signal.send_robust(sender=Job, job=_copy(job), **details)


def admit_in_memory(envelopes: Sequence[Envelope], *, batch: bool) -> list[Envelope | None]:
    """Admit jobs as an enqueue does, without a query for the configurations of queues."""
    queue_configs.remember(database.alias(), {}, seconds=60.0)
    return admit(envelopes, batch=batch)


def claimed(job: Job) -> Claimed:
    """Return a job as FETCH returns it."""
    texts = [json.dumps(each) for each in (job.args, job.meta, job.options)]
    error = None if job.error is None else json.dumps(job.error)
    row = (
        *(job.pk, job.type, job.queue, job.priority, *texts, job.attempt, job.max_attempts),
        *(job.returned, job.run, job.timeout_ms, job.visibility_timeout_ms, job.created_at),
        *(job.enqueued_at, job.due_at, job.expires_at, job.activated_at, job.started_at),
        *(job.lease_until, job.worker_id, error, None, job.workflow_id, False),
    )
    return Claimed(row)


def _due(job: Job) -> datetime:
    assert job.due_at is not None
    return job.due_at


def _moment(when: datetime | timedelta | None, now: datetime) -> datetime | None:
    return now + when if isinstance(when, timedelta) else when


def _dropped(envelope: Envelope) -> EnqueuedJob:
    return EnqueuedJob(
        id=envelope.id,
        type=envelope.type,
        queue=envelope.queue,
        state=None,
        outcome=Outcome.DROPPED,
    )


def _copy(job: Job) -> Job:
    # The copy of a model shares no state with it, and its JSON values are never changed in place.
    return Job.from_db(
        job._state.db, [f.attname for f in _FIELDS], [getattr(job, f.attname) for f in _FIELDS]
    )


_FIELDS = Job._meta.concrete_fields

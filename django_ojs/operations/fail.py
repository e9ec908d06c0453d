"""FAIL (ojs-core §7.4): a job's handler failed; its retry policy decides what follows."""

import random
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db.models import F, Max
from django.db.models.functions import Now
from django.utils import timezone

from django_ojs.conf import settings
from django_ojs.extension import Known
from django_ojs.hooks import registry
from django_ojs.models import Attempt, Job
from django_ojs.models.attempt import AttemptOutcome
from django_ojs.operations import dead_letter_queue, histories
from django_ojs.spec import json
from django_ojs.spec.failure import Failure
from django_ojs.spec.isolation import ISOLATED_AFTER
from django_ojs.spec.retry_policy import Decision
from django_ojs.spec.states import State, Trigger
from django_ojs.spec.timeouts import total_ends
from django_ojs.storage import database, notify, transitions
from django_ojs.storage.claimed_job import Claimed
from django_ojs.storage.transitions import ANY_CLAIM, Claim

#: How many runs in a row may conflict with other transactions until one spends an attempt.
MAX_CONFLICTS: Final = 10
_CONFLICTED: Final = "A conflict with another transaction (this run spends no attempt): "


@database.write_transaction
def fail(
    job_id: UUID,
    failure: Failure,
    *,
    claim: Claim = ANY_CLAIM,
    outcome: AttemptOutcome = AttemptOutcome.FAILED,
) -> Job:
    """Record a failed run: the job waits for its next attempt, or is discarded.

    An outcome that the handler raised takes precedence over the policy (ojs-retry §7.2). A failure
    with `rate_limit_until` pauses the limit key of the job; the job waits until then and spends no
    attempt. Raises JobNotFound, Conflict when the job is not active, ClaimLost when it is active
    under another claim.
    """
    if pause := failure.pause:
        return _postpone(job_id, failure, pause, claim)
    job = transitions.lock_active(job_id, Trigger.FAIL, State.RETRYABLE, claim)
    decision = _within_total_timeout(job, decide(job, failure))
    if decision.action == "retry":
        ended = _wait(job, failure, decision.delay, outcome, spend=True)
    else:
        ended = _discard(job, failure, decision, outcome)
    if ended.dead_letter and dead_letter_queue.queue_of(ended.queue) is not None:
        dead_letter_queue.move({job_id: ended.queue})
        return transitions.get(job_id)
    return ended


class Ended(NamedTuple):
    """What a job is after a failed run."""

    state: State
    spent: int
    max_attempts: int
    #: By the clock of this process: the row has the time of the database.
    due_at: datetime | None = None
    dead_letter: bool = False


@database.write_transaction
def fail_batch(
    worker_id: str, failed: Sequence[tuple[Claimed, Failure, AttemptOutcome]]
) -> dict[tuple[UUID, int], Ended]:
    """Record many failed runs of one worker, as `fail` records each, in a few statements.

    A failure with `rate_limit_until` must be given to `fail`: here it would spend an attempt, and
    pause no key. Return what became of the jobs that the worker still held, by (id, run); the
    others were cancelled, or their leases had lapsed.
    """
    held = transitions.lock_claimed(worker_id, [(job.id, job.run) for job, _, _ in failed])
    kept = [each for each in failed if (each[0].id, each[0].run) in held]
    if not kept:
        return {}
    again: dict[UUID, str] = {}
    discarded: dict[UUID, str] = {}
    ended: dict[tuple[UUID, int], Ended] = {}
    dead_letters: dict[UUID, str] = {}
    now = timezone.now()
    for job, failure, outcome in kept:
        # The claimed job is enough: nothing changes the policy or the counts of an active job.
        decision = _within_total_timeout(job, decide(job, failure))
        row: dict[str, Any] = {"id": str(job.id), "outcome": outcome.value}
        row["error"] = _error_of(failure)
        counts = job.spent, job.max_attempts
        # The row is encoded once, for the history and for the job.
        if decision.action == "retry":
            row["delay_us"] = decision.delay // timedelta(microseconds=1)
            again[job.id] = json.dumps(row)
            end = Ended(State.RETRYABLE, *counts, due_at=now + decision.delay)
        else:
            row |= {"reason": decision.reason, "dead_letter": decision.dead_letter}
            discarded[job.id] = json.dumps(row)
            end = Ended(State.DISCARDED, *counts, dead_letter=decision.dead_letter)
            if end.dead_letter:
                dead_letters[job.id] = job.queue
        ended[job.id, job.run] = end
    keys = [job.id for job, _, _ in kept]
    rows = f"[{', '.join([*again.values(), *discarded.values()])}]"
    link = database.connection()
    add_runs = partial(database.dialect_of(link).end_runs, link, "add_attempts", rows)
    histories.add(keys, add_runs)
    known = Known(
        jobs={job.id: job for job, _, _ in kept},
        workers=dict.fromkeys(keys, worker_id),
        failures={job.id: failure for job, failure, _ in kept},
    )
    transitions.fail(again, discarded, known)
    dead_letter_queue.move(dead_letters)
    return ended


def decide(job: Job | Claimed, failure: Failure) -> Decision:
    """Return what follows a failed run, by the job's policy and what the handler raised."""
    decision = job.retry_policy.decide(
        attempt=job.spent,
        error_type=failure.type,
        code=failure.code,
        retryable=failure.retryable,
        random=random.random,
    )
    return decision if failure.delay is None else replace(decision, delay=failure.delay)


def _within_total_timeout(job: Job | Claimed, decision: Decision) -> Decision:
    """Discard a job whose retry cannot end before its `total_timeout` (ojs-timeouts §9.1).

    The timeout of the next run counts only if the job sets it, because the default is half an hour.
    """
    if decision.action != "retry" or job.expires_at is None or (ends := total_ends(job)) is None:
        return decision
    (now,) = Job.primary.filter(pk=job.pk).values_list(Now(), flat=True)
    if now + decision.delay + timedelta(milliseconds=job.timeout_ms or 0) <= ends:
        return decision
    dead_letter = job.retry_policy.on_exhaustion == "dead_letter"
    return Decision(action="discard", dead_letter=dead_letter, reason="exhausted")


@database.write_transaction
def postpone(job_id: UUID, failure: Failure, *, delay: timedelta, claim: Claim = ANY_CLAIM) -> Job:
    """Postpone by `delay` a job that this worker cannot run, without spending an attempt.

    Raises as `fail` does.
    """
    return _postpone(job_id, failure, delay, claim)


def _postpone(job_id: UUID, failure: Failure, delay: timedelta, claim: Claim) -> Job:
    job = transitions.lock_active(job_id, Trigger.FAIL, State.RETRYABLE, claim)
    _tell_pause(job, failure)
    return _wait(job, failure, delay, AttemptOutcome.RETURNED, spend=False)


@database.write_transaction
def postpone_batch(
    worker_id: str, claims: Collection[tuple[UUID, int]], failure: Failure, *, delay: timedelta
) -> None:
    """Postpone jobs of one worker, given as (id, run), as `postpone` does, in a few statements.

    Jobs that it no longer holds, or that another session has locked, are left as they are.
    """
    keys = [key for key, _ in transitions.lock_claimed(worker_id, claims)]
    if not keys:
        return
    error = _error_of(failure)
    last = Attempt.primary.filter(job_id__in=keys).values("job_id").annotate(last=Max("id"))
    latest = Attempt.primary.filter(pk__in=last.values("last"))
    postponed = {run.job_id for run in latest if _is_postponement(run, error)}
    workers, failures = dict.fromkeys(keys, worker_id), dict.fromkeys(keys, failure)
    known = Known(workers=workers, failures=failures, spends=False)
    values: dict[str, Any] = {"due_at": Now() + delay, "error": error}
    values |= {"lease_until": None, "worker_id": None, "returned": F("returned") + 1}

    def postpone(keys: Sequence[UUID]) -> int:
        new = [key for key in keys if key not in postponed]
        histories.record(new, AttemptOutcome.RETURNED, error, delay)
        held = dict.fromkeys(keys, State.ACTIVE)
        return transitions.apply(Trigger.FAIL, State.RETRYABLE, held, known=known, **values)

    transitions.change_together(Trigger.FAIL, keys, postpone)


@database.write_transaction
def requeue(
    job_id: UUID,
    failure: Failure | None = None,
    *,
    claim: Claim = ANY_CLAIM,
    outcome: AttemptOutcome = AttemptOutcome.RETURNED,
) -> Job:
    """Return a job to its queue at once, without spending an attempt.

    This is the `requeue` of the HTTP binding's NACK. Raises as `fail` does.
    """
    return _requeue(job_id, failure, claim, outcome)


@database.write_transaction
def fail_beside_others(
    job_id: UUID, failure: Failure, *, others: int, claim: Claim = ANY_CLAIM
) -> Job:
    """Record a failed run. Its cause is this job, or one of `others` other jobs of its process.

    The first ISOLATED_AFTER such runs of a job spend no attempt; see `rescue`. Raises as `fail`
    does.
    """
    if transitions.lock(job_id).lost_with_others >= ISOLATED_AFTER:
        return fail(job_id, failure, claim=claim)
    unspent = replace(
        failure,
        message=f"{failure.message or failure.type} (beside {others} other jobs, any of which may "
        "be the cause: this run spends no attempt)",
    )
    return _requeue(
        job_id,
        unspent,
        claim,
        AttemptOutcome.FAILED,
        lost_with_others=F("lost_with_others") + 1,
    )


@database.write_transaction
def fail_by_conflict(job_id: UUID, failure: Failure, *, claim: Claim = ANY_CLAIM) -> Job:
    """Record a run whose transaction conflicted with another one: the job is available again.

    The first MAX_CONFLICTS such runs in a row spend no attempt. Raises as `fail` does.
    """
    latest = Attempt.primary.filter(job_id=job_id).order_by("-run", "-id")
    runs = [(run.outcome, (run.error or {}).get("message", "")) for run in latest[:MAX_CONFLICTS]]
    is_known = [o == AttemptOutcome.RETURNED and m.startswith(_CONFLICTED) for o, m in runs]
    if len(runs) == MAX_CONFLICTS and all(is_known):
        return fail(job_id, failure, claim=claim)
    message = f"{_CONFLICTED}{failure.message or failure.type}"
    return _requeue(job_id, replace(failure, message=message), claim, AttemptOutcome.RETURNED)


def _requeue(
    job_id: UUID,
    failure: Failure | None,
    claim: Claim,
    outcome: AttemptOutcome,
    **values: Any,
) -> Job:
    job = transitions.lock_active(job_id, Trigger.RETURN, State.AVAILABLE, claim)
    error = _error_of(failure) if failure is not None else None
    if failure is not None:
        _tell_pause(job, failure)
    if error is not None:
        histories.record([job.pk], outcome, error)
        values["error"] = error
    requeued = transitions.apply_one(
        Trigger.RETURN,
        State.AVAILABLE,
        job_id,
        known=_known(job, failure, spends=False),
        returned=F("returned") + 1,
        enqueued_at=Now(),
        lease_until=None,
        worker_id=None,
        **values,
    )
    notify.workers_of([job.queue])
    return requeued or transitions.get(job_id)


def _known(job: Job, failure: Failure | None, *, spends: bool) -> Known:
    return Known(
        jobs={job.pk: job},
        workers={job.pk: job.worker_id},
        failures={} if failure is None else {job.pk: failure},
        spends=spends,
    )


def _was_postponed(job: Job, error: dict[str, object]) -> bool:
    """Whether a history ends with a run that was postponed for the same reason.

    Such runs are recorded once, because a job may be postponed twice a minute during a deployment.
    """
    last = Attempt.primary.filter(job_id=job.pk).order_by("-run", "-id").first()
    return last is not None and _is_postponement(last, error)


def _is_postponement(last: Attempt, error: dict[str, object]) -> bool:
    return (
        last.outcome == AttemptOutcome.RETURNED
        and last.retry_delay_ms is not None
        and (last.error or {}).get("type") == error["type"]
    )


def _tell_pause(job: Job, failure: Failure) -> None:
    if failure.pause:
        for hook in registry.pause_asked:
            hook(job, failure)


def _wait(
    job: Job, failure: Failure, delay: timedelta, outcome: AttemptOutcome, *, spend: bool
) -> Job:
    error = _error_of(failure)
    is_known = None if spend else partial(_was_postponed, job, error)
    histories.record([job.pk], outcome, error, delay, is_known=is_known)
    unspent: dict[str, Any] = {} if spend else {"returned": F("returned") + 1}
    waiting = transitions.apply_one(
        Trigger.FAIL,
        State.RETRYABLE,
        job.pk,
        known=_known(job, failure, spends=spend),
        due_at=Now() + delay,
        error=error,
        lease_until=None,
        worker_id=None,
        **unspent,
    )
    return waiting or transitions.get(job.pk)


def _discard(job: Job, failure: Failure, decision: Decision, outcome: AttemptOutcome) -> Job:
    error = _error_of(failure)
    histories.record([job.pk], outcome, error)
    ended = transitions.apply_one(
        Trigger.FAIL,
        State.DISCARDED,
        job.pk,
        known=_known(job, failure, spends=True),
        finished_at=Now(),
        error=error,
        lease_until=None,
        dead_letter=decision.dead_letter,
        discard_reason=decision.reason,
    )
    return ended or transitions.get(job.pk)


def _error_of(failure: Failure) -> dict[str, Any]:
    # Backtraces are removed here and not where they are made, because a worker over HTTP sends its
    # own.
    if not settings().backtraces:
        failure = replace(failure, backtrace=())
    return failure.render()

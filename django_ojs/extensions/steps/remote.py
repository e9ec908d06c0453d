"""The steps of a run whose worker is a client of the HTTP API.

The client replays them, and these functions check and store them. Each function is given a claim
with a `run`. All raise JobNotFound, Conflict when the job is not active or its history has another
step, and ClaimLost when the job is active under another claim.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final
from uuid import UUID

from django.db.models import Q

from django_ojs.conf import of, settings
from django_ojs.extensions.steps import store
from django_ojs.extensions.steps.models import MAX_NAME, Step, StepKind, StepStatus
from django_ojs.extensions.steps.run_steps import is_due, was_woken
from django_ojs.extensions.steps.settings import StepsSettings
from django_ojs.models import Job
from django_ojs.spec import json
from django_ojs.spec.envelope import check_bytes
from django_ojs.spec.errors import Conflict, InvalidRequest, PayloadTooLarge
from django_ojs.spec.states import State, Trigger
from django_ojs.storage import transitions
from django_ojs.storage.transitions import Claim

#: The kinds of steps that these clients take.
KINDS: Final = (StepKind.RUN, StepKind.SLEEP, StepKind.WAIT)

#: In a loop, the second step named "pay" is "pay#2".
_NAME: Final = re.compile(rf"[^#\x00]{{1,{MAX_NAME}}}(#[1-9][0-9]{{0,8}})?")


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientStep:
    """A step that a client takes: its place in the history, from 0, and what it is."""

    number: int
    name: str
    kind: StepKind = StepKind.RUN
    #: The key of the signal for which it waits. The signal has the name of the step, without "#2".
    key: str | None = None


def history(job_id: UUID, claim: Claim) -> tuple[Job, list[Step]]:
    """Return the job and its steps, in order."""
    job = _held(job_id, claim)
    return job, [_as_it_counts(job, step) for step in store.of(job)]


def store_step(
    job_id: UUID,
    claim: Claim,
    taken: ClientStep,
    *,
    result: json.JSON,
    error: Mapping[str, Any] | None,
) -> tuple[Step, bool]:
    """Store that a step is done, or has failed. Return it, and whether it was stored now.

    A step that was stored before is returned as it is. Raises InvalidRequest and PayloadTooLarge.
    """
    exact = settings().exact_integers
    json.check(result, "result", exact_integers=exact, error=InvalidRequest)
    check_bytes(result, of(StepsSettings).max_step_result_bytes, "result", PayloadTooLarge)
    job, now = _held(job_id, claim), store.now()
    step, is_new, _ = _meet(job, taken, now)
    if step.outcome != StepStatus.WAITING and not is_new:
        return step, False
    step.attempts += 1
    step.result = None if result is None else json.dumps(result)
    step.error = None if error is None else dict(error)
    _end(job, step, StepStatus.DONE if error is None else StepStatus.FAILED, now, is_new=is_new)
    return step, True


def suspend(
    job_id: UUID,
    claim: Claim,
    taken: ClientStep,
    *,
    until: datetime | timedelta | None,
    error: Mapping[str, Any] | None = None,
) -> Step:
    """Give a job back until a time, or until its signal comes.

    The step's outcome is then `waiting`. Any other outcome says that there is nothing to wait for,
    and that the run goes on. `error` is why a step is tried again later. Raises InvalidRequest for
    a time too far away.
    """
    job, now = _held(job_id, claim), store.now()
    step, is_new, got = _meet(job, taken, now)
    if step.outcome != StepStatus.WAITING and not is_new:
        return step
    if isinstance(until, timedelta):
        until = now + until
    has_come: Callable[[], bool] | None = None
    if taken.kind == StepKind.WAIT:
        find = partial(store.find_signal, str(step.signal), str(step.key), got)
        if (found := find()) is not None:
            step.signal_id, step.result = found.pk, found.payload
            return _end(job, step, StepStatus.DONE, now, is_new=is_new)
        has_come = lambda: find() is not None  # noqa: E731  # shorter than a function
    if taken.kind == StepKind.RUN:
        step.attempts += 1
        step.error = None if error is None else dict(error)
    elif not is_new and (is_due(job, step) or (has_come is None and was_woken(job, step))):
        # A wait that an operator interrupts has not timed out, and waits on.
        outcome = StepStatus.TIMED_OUT if taken.kind == StepKind.WAIT else StepStatus.DONE
        return _end(job, step, outcome, now, is_new=False)
    if is_new or taken.kind == StepKind.RUN:
        if taken.kind == StepKind.SLEEP and until is not None and until <= now:
            return _end(job, step, StepStatus.DONE, now, is_new=True)
        step.until = _until(job, until, now, may_be_left_out=taken.kind == StepKind.WAIT)
    step.outcome, step.run = StepStatus.WAITING, job.run
    store.suspend(job, step, is_new=is_new, has_come=has_come)
    return step


def _held(job_id: UUID, claim: Claim) -> Job:
    job = transitions.get(job_id)
    if not store.is_held(job, claim):
        transitions.reject(Trigger.RETURN, State.AVAILABLE, job, claim)
    return job


def _as_it_counts(job: Job, step: Step) -> Step:
    """Return the step, with all its attempts again if it waits after a retry by hand."""
    if step.outcome == StepStatus.WAITING and job.attempt == 1:
        step.attempts = 0
    return step


def _meet(job: Job, taken: ClientStep, now: datetime) -> tuple[Step, bool, list[int]]:
    """Return the step of the history, or a new one after it, and whether it is new.

    The third value is the ids of the signals that the job got before, if the step waits for one.
    This takes one query, which reads few of the job's steps.
    """
    if _NAME.fullmatch(taken.name) is None:
        raise InvalidRequest.of(
            "name", f"must be a text of 1 to {MAX_NAME} characters, in a loop with #2, #3 and so on"
        )
    most = of(StepsSettings).max_steps
    if taken.number >= most:
        raise InvalidRequest.of("number", f"must be below {most} (MAX_STEPS)")
    wanted = Q(number__in=(taken.number - 1, taken.number)) | Q(name=taken.name)
    if taken.kind == StepKind.WAIT:
        wanted |= Q(signal_id__isnull=False)
    near = list(Step.primary.filter(wanted, job_id=job.pk))
    steps = {step.number: step for step in near}
    before, found = steps.get(taken.number - 1), steps.get(taken.number)
    got = [step.signal_id for step in near if step.signal_id is not None]
    if found is not None:
        if (found.name, found.kind, found.key) != (taken.name, taken.kind, taken.key):
            why = f"The history of the job says {found.name!r} ({found.kind})."
            raise _conflict(job, taken, why)
        return _as_it_counts(job, found), False, got
    if before is None and taken.number > 0:
        raise _conflict(job, taken, f"The job has no step {taken.number - 1}.")
    if before is not None and before.outcome == StepStatus.WAITING:
        raise _conflict(job, taken, f"The step {before.name!r} before it is not done.")
    if any(step.name == taken.name for step in near):
        raise InvalidRequest.of("name", "is the name of an earlier step: call this one name#2")
    step = Step(
        job_id=job.pk,
        number=taken.number,
        name=taken.name,
        kind=taken.kind,
        signal=taken.name.partition("#")[0] if taken.kind == StepKind.WAIT else None,
        key=taken.key,
        run=job.run,
        started_at=now,
    )
    return step, True, got


def _end(job: Job, step: Step, outcome: StepStatus, now: datetime, *, is_new: bool) -> Step:
    step.outcome, step.run, step.ended_at = outcome, job.run, now
    (store.insert if is_new else store.update)(job, step)
    return step


def _until(job: Job, until: datetime | None, now: datetime, *, may_be_left_out: bool) -> datetime:
    longest = now + of(StepsSettings).longest_wait
    expires_at = job.expires_at
    if until is None and may_be_left_out:
        return longest if expires_at is None else min(longest, expires_at)
    if until is None:
        raise InvalidRequest("until or delay_ms is required.", details={"field": "until"})
    if until > longest:
        raise InvalidRequest.of("until", f"must be at most {longest} (LONGEST_WAIT)")
    if expires_at is not None and until > expires_at:
        raise InvalidRequest.of("until", f"must be at most {expires_at}, when the job expires")
    return until


def _conflict(job: Job, taken: ClientStep, why: str) -> Conflict:
    return Conflict(
        f"The worker takes the step {taken.name!r} ({taken.kind}) as number {taken.number}. {why}",
        details={"job_id": str(job.pk), "number": taken.number},
    )

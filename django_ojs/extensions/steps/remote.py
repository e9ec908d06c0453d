"""The steps of a run whose worker is a client of the HTTP API: it replays, this checks and stores.

Each function is given a claim with a `run`. All raise JobNotFound, Conflict when the job is not
active or its history says another step, and ClaimLost when the job is active under another claim.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final
from uuid import UUID

from django_ojs.conf import of, settings
from django_ojs.extensions.steps import store
from django_ojs.extensions.steps.models import MAX_NAME, Step, StepKind, StepSignal, StepStatus
from django_ojs.extensions.steps.settings import StepsSettings
from django_ojs.extensions.steps.taken import is_due, was_woken
from django_ojs.models import Job
from django_ojs.spec import json
from django_ojs.spec.envelope import check_bytes
from django_ojs.spec.errors import Conflict, InvalidRequest, PayloadTooLarge
from django_ojs.spec.states import State, Trigger
from django_ojs.storage import transitions
from django_ojs.storage.transitions import Claim

#: The kinds of steps that these clients take.
KINDS: Final = (StepKind.RUN, StepKind.SLEEP, StepKind.WAIT)

#: In a loop, the second one is "pay#2".
_NAME: Final = re.compile(rf"[^#\x00]{{1,{MAX_NAME}}}(#[1-9][0-9]{{0,8}})?")


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientStep:
    """A step that a client takes: its place in the history, from 0, and what it is."""

    number: int
    name: str
    kind: StepKind = StepKind.RUN
    #: Of the signal for which it waits; its name is that of the step, without "#2".
    key: str | None = None


def history(job_id: UUID, claim: Claim) -> list[Step]:
    """Return the steps of a job, in order."""
    return store.of(_held(job_id, claim))


def store_step(
    job_id: UUID,
    claim: Claim,
    taken: ClientStep,
    *,
    result: json.JSON,
    error: Mapping[str, Any] | None,
) -> tuple[Step, bool]:
    """Store that a step is done, or has failed, and whether it was new.

    A step that was stored before is returned as it is. Raises InvalidRequest and PayloadTooLarge.
    """
    exact = settings().exact_integers
    json.check(result, "result", exact_integers=exact, error=InvalidRequest)
    check_bytes(result, of(StepsSettings).max_step_result_bytes, "result", PayloadTooLarge)
    job = _held(job_id, claim)
    step, is_new = _meet(job, store.of(job), taken)
    if step.outcome != StepStatus.WAITING and not is_new:
        return step, False
    step.attempts += 1
    step.result = None if result is None else json.dumps(result)
    step.error = None if error is None else dict(error)
    _end(job, step, StepStatus.DONE if error is None else StepStatus.FAILED, is_new=is_new)
    return step, True


def suspend(
    job_id: UUID,
    claim: Claim,
    taken: ClientStep,
    *,
    until: datetime | None,
    error: Mapping[str, Any] | None = None,
) -> Step:
    """Give a job back until a time, or until its signal comes; `waiting` is the outcome then.

    It is another one where there is nothing to wait for (any more): the run goes on with the step.
    `error` is why a step is tried again later. Raises InvalidRequest for a time too far away.
    """
    job = _held(job_id, claim)
    steps = store.of(job)
    step, is_new = _meet(job, steps, taken)
    if step.outcome != StepStatus.WAITING and not is_new:
        return step
    has_come: Callable[[], bool] | None = None
    if taken.kind == StepKind.WAIT:
        got = [each.signal_id for each in steps if each.signal_id is not None]
        find = partial(store.find_signal, str(step.signal), str(step.key), got)
        if (found := find()) is not None:
            step.signal_id, step.result = found.pk, found.payload
            return _end(job, step, StepStatus.DONE, is_new=is_new)
        has_come = partial(_has_come, find)
    if taken.kind == StepKind.RUN:
        step.attempts += 1
        step.error = None if error is None else dict(error)
    elif not is_new and (is_due(job, step) or was_woken(job, step)):
        outcome = StepStatus.TIMED_OUT if taken.kind == StepKind.WAIT else StepStatus.DONE
        return _end(job, step, outcome, is_new=False)
    if is_new or taken.kind == StepKind.RUN:
        if taken.kind == StepKind.SLEEP and until is not None and until <= store.now():
            return _end(job, step, StepStatus.DONE, is_new=True)
        step.until = _until(job, until, may_be_left_out=taken.kind == StepKind.WAIT)
    step.outcome, step.run = StepStatus.WAITING, job.run
    store.suspend(job, step, is_new=is_new, has_come=has_come)
    return step


def _held(job_id: UUID, claim: Claim) -> Job:
    job = transitions.get(job_id)
    if job.state != State.ACTIVE or not claim.holds(job):
        transitions.reject(Trigger.RETURN, State.AVAILABLE, job, claim)
    return job


def _meet(job: Job, steps: list[Step], taken: ClientStep) -> tuple[Step, bool]:
    """Return the step of the history, or the new one after it, and whether it is new."""
    if _NAME.fullmatch(taken.name) is None:
        raise InvalidRequest.of(
            "name", f"must be a text of 1 to {MAX_NAME} characters, in a loop with #2, #3 and so on"
        )
    if taken.number > len(steps) or (
        taken.number == len(steps) and steps and steps[-1].outcome == StepStatus.WAITING
    ):
        last = steps[-1].name if steps else None
        raise _conflict(job, taken, f"The last step of the job is {last!r}.")
    if taken.number < len(steps):
        step = steps[taken.number]
        if (step.name, step.kind, step.key) != (taken.name, taken.kind, taken.key):
            raise _conflict(job, taken, f"The history of the job says {step.name!r} ({step.kind}).")
        return step, False
    if any(step.name == taken.name for step in steps):
        raise InvalidRequest.of("name", "is that of an earlier step: the second is name#2")
    most = of(StepsSettings).max_steps
    if taken.number >= most:
        raise InvalidRequest.of("number", f"must be below {most} (MAX_STEPS)")
    step = Step(
        job_id=job.pk,
        number=taken.number,
        name=taken.name,
        kind=taken.kind,
        signal=taken.name.partition("#")[0] if taken.kind == StepKind.WAIT else None,
        key=taken.key,
        run=job.run,
        started_at=store.now(),
    )
    return step, True


def _end(job: Job, step: Step, outcome: StepStatus, *, is_new: bool) -> Step:
    step.outcome, step.run, step.ended_at = outcome, job.run, store.now()
    (store.insert if is_new else store.update)(job, step)
    return step


def _has_come(find: Callable[[], StepSignal | None]) -> bool:
    return find() is not None


def _until(job: Job, until: datetime | None, *, may_be_left_out: bool) -> datetime:
    longest = store.now() + of(StepsSettings).longest_wait
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

"""What jobs wait for in their steps, in sentences for people."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.utils import timezone

from django_ojs.extensions.steps.models import Step, StepKind, StepStatus
from django_ojs.formatting import absolute_time, duration
from django_ojs.storage.dialects.expressions import OneOf


def of(jobs: Sequence[Any]) -> Mapping[UUID, str]:
    """Return what each of these jobs waits for, if one of its steps waits. It takes one query."""
    waiting = Step.primary.filter(
        OneOf("job_id", [job.pk for job in jobs]), outcome=StepStatus.WAITING
    )
    found = waiting.defer("result", "error")
    return {step.job_id: _sentence(step) for step in found}


def _sentence(step: Step) -> str:
    waited = duration(timezone.now() - step.started_at)
    until = absolute_time(step.until)
    match step.kind:
        case StepKind.WAIT:
            return f"It has waited {waited} for {step.signal} of {step.key}, at most until {until}."
        case StepKind.SLEEP:
            return f"It has slept {waited} in the step {step.name}, and sleeps until {until}."
        case StepKind.GATHER:
            return (
                f"It has waited {waited} for the jobs of the step {step.name}, "
                f"at most until {until}."
            )
        case _:
            failed = f"Its step {step.name} has failed (calls: {step.attempts})"
            return f"{failed}, and is tried again at {until}."

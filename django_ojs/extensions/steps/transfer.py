"""The steps of a job in an export, and in an import."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db.models import F

from django_ojs.extensions.steps.models import Step, StepKind, StepStatus
from django_ojs.models import Job
from django_ojs.spec import json
from django_ojs.spec.errors import InvalidRequest, OJSError
from django_ojs.spec.times import format_timestamp, parse_timestamp
from django_ojs.storage.dialects.expressions import OneOf

#: `signal_id` is left out, because it means nothing in another database.
_PLAIN: Final = ("name", "kind", "outcome", "error", "attempts", "signal", "key")
_TIMES: Final = ("until", "started_at", "ended_at")


def exported(jobs: Sequence[Job]) -> dict[UUID, list[dict[str, Any]]]:
    """Return the steps of these jobs, read by one query."""
    found: defaultdict[UUID, list[dict[str, Any]]] = defaultdict(list)
    steps = Step.primary.filter(OneOf("job_id", [job.pk for job in jobs]))
    for step in steps.order_by("job_id", "number"):
        values = {name: getattr(step, name) for name in _PLAIN}
        times = {name: getattr(step, name) for name in _TIMES}
        values |= {name: format_timestamp(at) for name, at in times.items() if at is not None}
        if step.result is not None:
            values["result"] = step.value
        found[step.job_id].append({k: v for k, v in values.items() if v is not None})
    return dict(found)


def imported(found: Mapping[UUID, Any]) -> None:
    """Store the steps of new jobs. Raises InvalidRequest."""
    steps = [step for key, given in found.items() for step in _read(key, given)]
    Step.primary.bulk_create(steps)
    # The first run of a job does not read its steps, so the next run must not be the first.
    Job.primary.filter(OneOf("pk", list(found))).update(run=F("run") + 1)


def _read(job_id: UUID, given: object) -> list[Step]:
    try:
        if not isinstance(given, list):
            raise TypeError
        return [_step(job_id, number, values) for number, values in enumerate(given)]
    except (KeyError, TypeError, ValueError, ValidationError, OJSError):
        raise InvalidRequest("The steps of the job are not as an export writes them.") from None


def _step(job_id: UUID, number: int, values: Mapping[str, Any]) -> Step:
    times: dict[str, datetime | None] = {
        name: parse_timestamp(values[name], name) if name in values else None for name in _TIMES
    }
    texts = [values["name"], values.get("signal") or "", values.get("key") or ""]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError
    step = Step(
        job_id=job_id,
        number=number,
        name=values["name"],
        kind=StepKind(values["kind"]),
        outcome=StepStatus(values["outcome"]),
        result=json.dumps(values["result"]) if "result" in values else None,
        error=values.get("error"),
        attempts=int(values.get("attempts", 0)),
        signal=values.get("signal"),
        key=values.get("key"),
        run=0,
        **times,
    )
    step.clean_fields(exclude=("pk", "job_id"))
    if step.kind == StepKind.GATHER and (step.key or step.outcome == StepStatus.WAITING):
        UUID(step.key)  # The id of a workflow, or a ValueError or TypeError.
    return step

"""Findings about jobs with steps."""

from typing import Final

from django_ojs.extensions.steps.models import Step, StepStatus
from django_ojs.finding import Finding, Severity
from django_ojs.models import Job
from django_ojs.spec.states import State
from django_ojs.storage import queue_configs, raw_queries
from django_ojs.storage.dialects.expressions import OneOf

#: How many jobs are checked: those that are due next.
_SAMPLE: Final = 500
#: How many names a finding lists.
_MOST: Final = 5


def condition() -> str:
    """Return the SQL condition that there may be something to find."""
    return raw_queries.condition(Job, f"state = '{State.SCHEDULED.value}'")


def found() -> list[Finding]:
    """Find jobs that may be discarded between two of their steps."""
    columns = ("pk", "queue", "type", "options__rate_limit__on_limit")
    due = Job.primary.filter(state=State.SCHEDULED).order_by("due_at", "id")
    sample = {key: rest for key, *rest in due.values_list(*columns)[:_SAMPLE]}
    if not sample:
        return []
    # The steps are found by the ids of the jobs, because a join may read the steps of all jobs.
    steps = Step.primary.filter(OneOf("job_id", list(sample)), outcome=StepStatus.WAITING)
    asleep = [sample[key] for key in steps.values_list("job_id", flat=True)]
    queues = {q for q, _, _ in asleep if queue_configs.of(q).backpressure.strategy == "drop_oldest"}
    types = {type for _, type, on_limit in asleep if on_limit == "drop"}
    problems = []
    if queues:
        problems.append(
            Finding(
                kind="steps_may_be_dropped",
                severity=Severity.ADVICE,
                text=f"Jobs wait in a step, and their queue may drop them: {_names(queues)}.",
                why="With the strategy drop_oldest, a job that goes on after its wait is the "
                "oldest, and is discarded between two steps when the queue is full.",
                cure="Give these queues the strategy reject or block, or these jobs another queue.",
            )
        )
    if types:
        problems.append(
            Finding(
                kind="steps_may_be_limited",
                severity=Severity.ADVICE,
                text=f"Jobs wait in a step, and their rate limit may drop them: {_names(types)}.",
                why="With on_limit drop, a job that goes on after its wait and meets the limit is "
                "discarded between two steps.",
                cure="Let these types wait at their limit: on_limit wait or reschedule.",
            )
        )
    return problems


def _names(names: set[str]) -> str:
    some = sorted(names)
    more = f" and {len(some) - _MOST} more" if len(some) > _MOST else ""
    return ", ".join(some[:_MOST]) + more

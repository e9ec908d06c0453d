"""A workflow as a graph of steps, into which each shape of ojs-workflows §4-§6 and §10 is read."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal
from uuid import UUID

WorkflowType = Literal["chain", "group", "batch", "graph"]
CallbackName = Literal["on_complete", "on_success", "on_failure"]

CALLBACKS: Final[tuple[CallbackName, ...]] = ("on_complete", "on_success", "on_failure")


class StepOutcome(StrEnum):
    """How a step ended."""

    SUCCEEDED = "succeeded"
    #: Its job was discarded or cancelled; for a join, the job of a dependency was.
    FAILED = "failed"
    #: It never started: its condition was not met.
    SKIPPED = "skipped"


class Condition(StrEnum):
    """When a step starts. It is evaluated once, when all of `depends_on` have ended."""

    ALL_SUCCEEDED = "all_succeeded"
    ANY_FAILED = "any_failed"
    #: No dependency was skipped: all of them have run, whatever the outcome.
    ALL_ENDED = "all_ended"
    #: No dependency failed and at least one succeeded; callbacks that did not apply are skipped.
    NONE_FAILED = "none_failed"

    def is_met(self, *, succeeded: int, failed: int, skipped: int) -> bool:
        """Return whether a step starts, given how many of its dependencies ended in which way."""
        match self:
            case Condition.ALL_SUCCEEDED:
                return not failed and not skipped
            case Condition.ANY_FAILED:
                return failed > 0
            case Condition.ALL_ENDED:
                return not skipped
            case Condition.NONE_FAILED:
                return not failed and succeeded > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphStep:
    """One node of the graph: a job, or a join, which has none.

    A join ends as soon as its condition has been evaluated: see `join_outcome`. It stands for a
    nested workflow, or for the members of a batch, so that 10,000 members and 10,000 dependents
    need only 20,000 edges.

    `parents` are the steps whose results the job gets as `parent_results`, in order. The result of
    a join is the array of its parents' results, or with `last_result` the last of them.
    """

    #: It is unique in the graph. The join of a nested workflow has the path of that workflow.
    key: str
    #: The envelope to push (type, args, meta, options), or None for a join.
    job: Mapping[str, Any] | None
    depends_on: tuple[str, ...] = ()
    condition: Condition = Condition.ALL_SUCCEEDED
    parents: tuple[str, ...] = ()
    last_result: bool = False
    callback: CallbackName | None = None
    #: Whether its failure fails the workflow. Inside a batch it does not, because the callbacks of
    #: the batch handle it.
    fails_workflow: bool = True
    name: str | None = None
    #: Its path in the client's definition, such as `steps[1].jobs[0]`.
    path: str = ""

    @property
    def is_join(self) -> bool:
        return self.job is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A workflow that was checked: the steps in topological order, keys unique, no cycle.

    The workflow ends when every step has: `failed` if a step whose `fails_workflow` is set failed,
    else `completed`.
    """

    type: WorkflowType
    name: str | None
    #: The id that the client gave it; it is in `client_id` instead if it is no UUIDv7.
    id: UUID | None = None
    client_id: str | None = None
    steps: tuple[GraphStep, ...]
    #: What the client sent, for responses.
    definition: Mapping[str, Any]

    @property
    def jobs(self) -> tuple[GraphStep, ...]:
        """The steps that have a job, in topological order."""
        return tuple(step for step in self.steps if step.job is not None)


def join_outcome(condition: Condition, *, succeeded: int, failed: int, skipped: int) -> StepOutcome:
    """Return how a join ends, given how many of its dependencies ended in which way."""
    if condition.is_met(succeeded=succeeded, failed=failed, skipped=skipped):
        return StepOutcome.SUCCEEDED
    return StepOutcome.FAILED if failed else StepOutcome.SKIPPED


def evaluate(step: GraphStep, outcomes: Iterable[StepOutcome]) -> StepOutcome | None:
    """Return how a step ends whose dependencies have all ended, or None if its job starts now."""
    ended = list(outcomes)
    counts = {
        "succeeded": ended.count(StepOutcome.SUCCEEDED),
        "failed": ended.count(StepOutcome.FAILED),
        "skipped": ended.count(StepOutcome.SKIPPED),
    }
    if step.is_join:
        return join_outcome(step.condition, **counts)
    return None if step.condition.is_met(**counts) else StepOutcome.SKIPPED

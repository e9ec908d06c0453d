"""Delete workflows that ended long ago."""

from typing import Final
from uuid import UUID

from django.db.models.functions import Now

from django_ojs.conf import of
from django_ojs.extensions.workflows.models import Workflow, WorkflowState, WorkflowStep
from django_ojs.extensions.workflows.settings import WorkflowSettings
from django_ojs.storage import database, raw_queries
from django_ojs.storage.dialects.expressions import OneOf

#: How many workflows and how many steps one transaction deletes: a workflow may have many steps.
AT_ONCE: Final = 20
STEPS_AT_ONCE: Final = 2_000


_ENDED: Final = (WorkflowState.COMPLETED, WorkflowState.FAILED, WorkflowState.CANCELLED)


def condition() -> str:
    """Return the SQL condition that `prune` may find any rows."""
    keep = of(WorkflowSettings).keep_workflows
    each = (
        raw_queries.is_older(Workflow, "finished_at", f"state = '{state.value}'", keep)
        for state in _ENDED
    )
    return f"({' OR '.join(each)})"


def prune(limit: int = AT_ONCE, *, steps: int = STEPS_AT_ONCE) -> int:
    """Delete workflows that ended KEEP_WORKFLOWS ago, after their steps. Return how many rows.

    Their jobs are pruned like other jobs.
    """
    old = Workflow.primary.filter(
        state__in=_ENDED, finished_at__lte=Now() - of(WorkflowSettings).keep_workflows
    )
    keys = list(old.order_by("finished_at").values_list("pk", flat=True)[:limit])
    return _delete(keys, steps) if keys else 0


@database.write_transaction
def _delete(keys: list[UUID], limit: int) -> int:
    locked = Workflow.primary.select_for_update(skip_locked=True).filter(pk__in=keys)
    found = list(locked.values_list("pk", flat=True))
    steps = WorkflowStep.primary.filter(workflow_id__in=found).values_list("pk", flat=True)[:limit]
    deleted = WorkflowStep.primary.filter(OneOf("pk", list(steps))).delete()[0]
    if deleted < limit:
        deleted += Workflow.primary.filter(pk__in=found).delete()[0]
    return deleted

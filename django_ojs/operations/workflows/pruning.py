"""Delete workflows that ended long ago."""

from uuid import UUID

from django.db.models.functions import Now

from django_ojs.conf import settings
from django_ojs.models import Workflow, WorkflowStep
from django_ojs.models.workflow import WorkflowState
from django_ojs.storage import database

#: Workflows that one transaction deletes: each may have many steps.
_AT_ONCE = 20


def prune(limit: int = _AT_ONCE) -> int:
    """Delete workflows, with their steps, that ended before KEEP_WORKFLOWS. Return how many.

    Their jobs are pruned as others are.
    """
    ended = (WorkflowState.COMPLETED, WorkflowState.FAILED, WorkflowState.CANCELLED)
    old = Workflow.primary.filter(
        state__in=ended, finished_at__lte=Now() - settings().keep_workflows
    )
    keys = list(old.order_by("finished_at").values_list("pk", flat=True)[:limit])
    return _delete(keys) if keys else 0


@database.write_transaction
def _delete(keys: list[UUID]) -> int:
    locked = Workflow.primary.select_for_update(skip_locked=True).filter(pk__in=keys)
    found = list(locked.values_list("pk", flat=True))
    WorkflowStep.primary.filter(workflow_id__in=found).delete()
    return Workflow.primary.filter(pk__in=found).delete()[0]

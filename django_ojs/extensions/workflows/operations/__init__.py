"""Workflows (ojs-workflows): create them, start their steps when they may, cancel and read them."""

from django_ojs.extensions.workflows.operations.advance import advance, advance_due
from django_ojs.extensions.workflows.operations.after_commit import advance_after_commit
from django_ojs.extensions.workflows.operations.cancel_workflow import cancel
from django_ojs.extensions.workflows.operations.creation import check, create
from django_ojs.extensions.workflows.operations.history import history_of
from django_ojs.extensions.workflows.operations.progress import (
    StepProgress,
    WorkflowProgress,
    progress_of,
)
from django_ojs.extensions.workflows.operations.queries import (
    StepDetail,
    details,
    get,
    of_client,
    page,
    step_ids,
    steps_of,
)
from django_ojs.extensions.workflows.operations.starting import reference
from django_ojs.extensions.workflows.operations.whole_results import whole_result

__all__ = [
    "StepDetail",
    "StepProgress",
    "WorkflowProgress",
    "advance",
    "advance_after_commit",
    "advance_due",
    "cancel",
    "check",
    "create",
    "details",
    "get",
    "history_of",
    "of_client",
    "page",
    "progress_of",
    "reference",
    "step_ids",
    "steps_of",
    "whole_result",
]

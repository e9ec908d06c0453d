"""Workflows (ojs-workflows): their graphs; `parse` reads them from JSON."""

from django_ojs.extensions.workflows.spec.graph import (
    CALLBACKS,
    CallbackName,
    Condition,
    Graph,
    GraphStep,
    StepOutcome,
    WorkflowType,
    evaluate,
    join_outcome,
)

__all__ = [
    "CALLBACKS",
    "CallbackName",
    "Condition",
    "Graph",
    "GraphStep",
    "StepOutcome",
    "WorkflowType",
    "evaluate",
    "join_outcome",
]

"""Workflows (ojs-workflows): their graphs, and reading them from JSON."""

from django_ojs.spec.workflow.graph import (
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
from django_ojs.spec.workflow.parse import parse

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
    "parse",
]

"""`import django_ojs as ojs`: the public names, all of them and only they."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import django_ojs as ojs
from tests.cases import together

SOURCE = Path(ojs.__file__)

NAMES = {
    "EnqueuedWorkflow",
    "Workflow",
    "WorkflowRequest",
    "acancel_workflow",
    "aget_workflow",
    "batch",
    "cancel_workflow",
    "chain",
    "get_workflow",
    "graph",
    "group",
    "step",
    "HIGH",
    "LOW",
    "NORMAL",
    "DeadLetter",
    "Discard",
    "EnqueuedJob",
    "Handler",
    "Job",
    "JobContext",
    "OJSError",
    "Outcome",
    "PayloadFile",
    "PayloadStream",
    "RateLimitExceeded",
    "RateLimitPolicy",
    "Request",
    "Retry",
    "RetryPolicy",
    "State",
    "UniquePolicy",
    "UnverifiedPayloadStream",
    "aactivate",
    "acancel",
    "activate",
    "aenqueue",
    "aenqueue_after_commit",
    "aenqueue_batch",
    "aget_job",
    "aretry",
    "apause_queue",
    "adrain_queue",
    "drain_queue",
    "aresume_queue",
    "errors",
    "new_id",
    "pause_queue",
    "payload_reference",
    "resume_queue",
    "cancel",
    "cron",
    "current_context",
    "enqueue",
    "enqueue_after_commit",
    "enqueue_batch",
    "get_job",
    "job",
    "request",
    "retry",
}


def test_the_public_names_are_these() -> None:
    assert sorted(ojs.__all__) == sorted(NAMES)


@together("name", sorted(NAMES))
def test_a_name_is_there_and_documented(name: str) -> None:
    value = getattr(ojs, name)
    assert getattr(ojs, name) is value
    assert name in dir(ojs)
    assert isinstance(value, int) or value.__doc__


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(SOURCE.read_text())
    (block,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    seen = {
        (alias.name, node.module)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == set(ojs._MODULES.items())
    # `errors` is a module and needs no Django: it is imported at once.
    assert {*ojs._MODULES, "errors"} == set(ojs.__all__)


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'django_ojs' has no attribute 'enqeue'"):
        ojs.enqeue  # type: ignore[attr-defined]  # noqa: B018  # looking is the point
    assert not hasattr(ojs, "enqueue_many")


def test_the_package_can_be_imported_before_django_is_set_up() -> None:
    code = (
        "import sys, django_ojs as ojs; ojs.__version__; dir(ojs); ojs.RetryPolicy; ojs.OJSError;"
        "ojs.Retry; ojs.State; print('django.db' in sys.modules)"
    )
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=SOURCE.parent.parent,
        env={},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (found.stdout, found.stderr) == ("False\n", "")


def test_priorities_have_names() -> None:
    assert (ojs.HIGH, ojs.NORMAL, ojs.LOW) == (10, 0, -10)

"""Extensions that a site takes out of its settings, and puts back: real processes."""

from __future__ import annotations

import json
from typing import Any

import pytest

import django_ojs as ojs
from django_ojs.models import Job
from django_ojs.storage import schema
from tests.testapp import worker_jobs as handlers
from tests.worker.acceptance.conftest import Start
from tests.worker.acceptance.ledger import ALIASES
from tests.worker.processes import Tree

pytestmark = [pytest.mark.django_db(transaction=True, databases=ALIASES), pytest.mark.slow]

WITHOUT: dict[str, Any] = {
    "OJS_TEST_APPS": json.dumps(["tests.taken_out.TakenOut"]),
    "OJS_TEST_TAKEN_OUT": "workflows,checkpoints",
}


@pytest.fixture(autouse=True)
def whole_schema() -> Any:
    """Leave the schema to the next test as it was."""
    yield
    schema.create_missing("default")


def manage(start: Start, *arguments: str, **variables: Any) -> Tree:
    tree = start(*arguments[1:], program=("manage.py", arguments[0]), **variables)
    assert tree.ends() == 0, tree.log
    return tree


def test_workflows_run_on_when_their_extension_is_put_back(start: Start) -> None:
    workflow = ojs.chain(handlers.note.s("first"), handlers.note.s("second")).enqueue()
    first = Job.objects.get()
    manage(start, "ojs", "doctor", "--only", "remains", "--repair", **WITHOUT)
    first.refresh_from_db()
    assert first.marks == 0
    # A worker without the extension runs what there is, and nobody notes its end.
    assert start("--once", **WITHOUT).ends() == 0
    first.refresh_from_db()
    assert first.state == "completed"
    assert workflow.workflow().state == "running"
    # One that has it does not start before it finds all that it needs.
    early = start("--once")
    assert early.ends() != 0
    assert "are missing" in early.log
    assert "workflows" in early.log
    manage(start, "migrate", "--verbosity", "0")
    assert start("--once").ends() == 0
    assert workflow.workflow().state == "completed"
    assert [job.state for job in Job.objects.all()] == ["completed"] * 2

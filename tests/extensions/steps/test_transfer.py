"""The steps of a job travel with it."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import django_ojs
from django_ojs.extensions import steps
from django_ojs.extensions.steps.models import Step
from django_ojs.hooks import registry
from django_ojs.models import Job
from django_ojs.testing import Drained, TestContext
from tests.command_line.run import ojs as command
from tests.extensions.steps.programs import Calls, Program

pytestmark = pytest.mark.django_db


def test_an_imported_job_goes_on_where_it_was(ojs: TestContext, tmp_path: Path) -> None:
    charge = Calls()

    def fulfil(ctx: django_ojs.JobContext) -> Any:
        payment = steps.run("charge", charge, {"amount": 1})
        return [payment, steps.wait("packed", "order-7", timeout=timedelta(days=2))]

    program = Program(ojs, fulfil)
    program.run()
    before = [(step.name, step.outcome, step.value) for step in program.steps]
    due_at = program.job.due_at
    file = tmp_path / "jobs.jsonl"
    file.write_text(command("export").out)
    Job.primary.filter(pk=program.id).delete()
    Step.objects.all().delete()
    assert command("import", file).code == 0
    assert [(step.name, step.outcome, step.value) for step in program.steps] == before
    assert abs(program.job.due_at - due_at) < timedelta(seconds=1)
    assert "ojs_extensions" not in program.job.envelope()
    steps.signal("packed", "order-7", 2)
    assert program.run() == Drained(completed=1)
    assert program.job.result == [{"amount": 1}, 2]
    assert charge.made == [{"amount": 1}]


STEP = {"name": "wait", "kind": "wait", "outcome": "waiting", "started_at": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    "step",
    [
        {"name": 3},
        {name: value for name, value in STEP.items() if name != "started_at"},
        {**STEP, "signal": "x" * 201},
        {**STEP, "key": 5},
        {**STEP, "attempts": -1},
        {**STEP, "kind": "dance"},
        {**STEP, "kind": "gather", "signal": "workflow", "key": "abc"},
        {**STEP, "kind": "gather", "signal": "workflow"},
    ],
)
def test_steps_that_are_no_steps_are_rejected_with_their_job(
    ojs: TestContext, tmp_path: Path, step: dict[str, Any]
) -> None:
    file = tmp_path / "jobs.jsonl"
    line = {"type": "steps.program", "args": [], "ojs_extensions": {"steps": [step]}}
    file.write_text(json.dumps(line) + "\n")
    run = command("import", file)
    assert run.code != 0
    assert "not as an export writes them" in run.err
    assert not Job.objects.exists()


def test_a_site_without_steps_says_that_it_imports_none(ojs: TestContext, tmp_path: Path) -> None:
    file = tmp_path / "jobs.jsonl"
    line = {"type": "steps.program", "args": [], "ojs_extensions": {"steps": []}}
    file.write_text(f"{json.dumps(line)}\n{json.dumps(line)}\n")
    (extension,) = (each for each in registry.extensions() if each.name == "steps")
    registry.remove(extension)
    try:
        for options in (["--dry-run"], []):
            run = command("import", file, *options)
            assert run.code == 0
            assert "Jobs with data of the extension steps: 2. It is not installed" in run.err
    finally:
        registry.register(extension)
    assert "not installed" not in command("import", file).err

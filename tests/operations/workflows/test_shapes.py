"""Each shape of a workflow: which steps start when, and how the workflow ends."""

from __future__ import annotations

from typing import Any

import pytest

from django_ojs.extensions.workflows import operations as workflows
from django_ojs.extensions.workflows.models import EndedWorkflowJob
from django_ojs.operations import cancel, fail
from tests.factories import BOOM, jobs
from tests.operations.workflows.scenes import (
    available,
    batch,
    chain,
    create,
    finish,
    group,
    job,
    job_of,
    read,
    states,
    step,
    step_of,
    take,
)

pytestmark = pytest.mark.django_db


@pytest.mark.requirement("WF-06", "WF-07")
def test_the_steps_of_a_chain_run_one_after_the_other() -> None:
    workflow = create(chain(job("a"), job("b"), job("c"), name="order"))
    assert (workflow.type, workflow.name, workflow.state) == ("chain", "order", "running")
    assert available() == ["a"]
    assert states(workflow) == {"a": "enqueued", "b": "waiting", "c": "waiting"}
    finish("a")
    assert available() == ["b"]
    finish("b")
    assert states(workflow) == {"a": "completed", "b": "completed", "c": "enqueued"}
    assert read(workflow).state == "running"
    finish("c")
    ended = read(workflow)
    assert (ended.state, ended.jobs_completed, ended.jobs_failed) == ("completed", 3, 0)
    assert ended.started_at is not None
    assert ended.finished_at is not None
    assert not EndedWorkflowJob.primary.exists()


@pytest.mark.requirement("WF-08")
def test_a_chain_fails_with_its_step_and_starts_no_other() -> None:
    workflow = create(chain(job("a"), job("b"), job("c")))
    finish("a")
    finish("b", fails=True)
    assert available() == []
    assert states(workflow) == {"a": "completed", "b": "failed", "c": "skipped"}
    ended = read(workflow)
    assert (ended.state, ended.jobs_completed, ended.jobs_failed) == ("failed", 1, 1)
    assert step_of(workflow, "b").error["type"] == "Boom"


@pytest.mark.requirement("WF-27")
def test_a_step_that_will_be_retried_has_not_failed() -> None:
    workflow = create(chain(job("a", retry={"max_attempts": 2}), job("b")))
    claimed = take("a")
    assert fail.fail(claimed.id, BOOM).state == "retryable"
    assert workflows.advance_due() == 0
    assert read(workflow).state == "running"


@pytest.mark.requirement("WF-10", "WF-11", "WF-12")
def test_all_members_of_a_group_start_at_once_and_run_to_their_end() -> None:
    workflow = create(group(job("a"), job("b"), job("c")))
    assert available() == ["a", "b", "c"]
    finish("a", fails=True)
    assert available() == ["b", "c"]
    assert read(workflow).state == "running"
    finish("b")
    finish("c")
    ended = read(workflow)
    assert (ended.state, ended.jobs_completed, ended.jobs_failed) == ("failed", 2, 1)


CALLBACKS: dict[str, Any] = {
    "on_complete": job("done"),
    "on_success": job("well"),
    "on_failure": job("badly"),
}


@pytest.mark.requirement("WF-14", "WF-15", "WF-16", "WF-17", "WF-18", "WF-26")
@pytest.mark.parametrize(
    ("fails", "fired"), [(False, ["done", "well"]), (True, ["done", "badly"])], ids=["all", "not"]
)
def test_the_callbacks_of_a_batch_that_its_outcome_asks_for_fire_once(
    fails: bool, fired: list[str]
) -> None:
    workflow = create(batch(job("a"), job("b"), **CALLBACKS))
    finish("a", fails=fails)
    assert available() == ["b"]
    finish("b")
    assert available() == fired
    assert read(workflow).state == "running"
    for each in fired:
        finish(each)
    ended = read(workflow)
    assert ended.state == "completed"
    assert (ended.jobs_total, ended.jobs_completed, ended.jobs_failed) == (2, 2 - fails, fails)
    assert jobs().count() == 4


@pytest.mark.requirement("WF-20")
def test_a_batch_fails_with_its_callback() -> None:
    workflow = create(batch(job("a"), on_complete=job("done")))
    finish("a")
    finish("done", fails=True)
    ended = read(workflow)
    assert (ended.state, ended.jobs_failed) == ("failed", 0)
    assert step_of(workflow, "done").error["type"] == "Boom"


@pytest.mark.parametrize(("attempts", "state"), [(1, "failed"), (2, "running")])
@pytest.mark.requirement("WF-19")
def test_a_callback_that_fails_is_retried_by_its_policy(attempts: int, state: str) -> None:
    workflow = create(batch(job("a"), on_complete=job("done", retry={"max_attempts": attempts})))
    finish("a")
    fail.fail(take("done").id, BOOM)
    workflows.advance_due()
    assert read(workflow).state == state


@pytest.mark.requirement("WF-32")
def test_a_step_of_a_chain_can_be_a_group() -> None:
    workflow = create(chain(job("a"), group(job("x"), job("y")), job("b")))
    finish("a")
    assert available() == ["x", "y"]
    finish("x")
    assert available() == ["y"]
    finish("y")
    assert available() == ["b"]
    finish("b")
    assert read(workflow).state == "completed"


def test_a_batch_in_a_chain_that_was_never_reached_fires_nothing() -> None:
    workflow = create(chain(job("a"), batch(job("x"), **CALLBACKS), job("b")))
    finish("a", fails=True)
    assert available() == []
    assert set(states(workflow).values()) == {"failed", "skipped"}
    assert read(workflow).state == "failed"


@pytest.mark.requirement("WF-32")
def test_the_failure_of_a_chain_in_a_batch_is_the_batchs() -> None:
    workflow = create(batch(chain(job("a"), job("b")), job("c"), **CALLBACKS))
    finish("a", fails=True)
    finish("c")
    assert available() == ["done", "badly"]
    finish("done")
    finish("badly")
    assert read(workflow).state == "completed"


@pytest.mark.requirement("WF-S03")
def test_three_levels_of_nesting() -> None:
    inner = group(chain(job("a"), job("b")), job("c"))
    workflow = create(chain(job("first"), batch(inner, job("d"), on_success=job("well")), job("z")))
    finish("first")
    for each in ("a", "c", "d", "b"):
        finish(each)
    assert available() == ["well"]
    finish("well")
    assert available() == ["z"]
    finish("z")
    assert read(workflow).state == "completed"


def test_a_graph_starts_a_step_when_all_that_it_depends_on_has_ended() -> None:
    workflow = create(
        {
            "steps": [step("d", "b", "c"), step("b", "a"), step("c", "a"), step("a")],
            "name": "diamond",
        }
    )
    assert workflow.type == "graph"
    assert available() == ["a"]
    finish("a")
    assert sorted(available()) == ["b", "c"]
    finish("b")
    assert available() == ["c"]
    finish("c")
    assert available() == ["d"]
    finish("d")
    assert read(workflow).state == "completed"


def test_a_failed_step_of_a_graph_ends_what_depends_on_it_and_nothing_else() -> None:
    workflow = create({"steps": [step("a"), step("b"), step("c", "a"), step("d", "b")]})
    finish("a", fails=True)
    assert states(workflow)["c"] == "skipped"
    finish("b")
    assert read(workflow).state == "running"
    finish("d")
    assert read(workflow).state == "failed"


def test_a_job_that_was_cancelled_alone_counts_as_failed() -> None:
    workflow = create(chain(job("a"), job("b")))
    cancel.cancel(job_of(workflow, "a").pk)
    assert workflows.advance_due() == 1
    assert states(workflow) == {"a": "cancelled", "b": "skipped"}
    assert read(workflow).state == "failed"

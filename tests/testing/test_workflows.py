"""Workflows in a project's tests: `drain` runs them step by step."""

from __future__ import annotations

import pytest
from asgiref.sync import async_to_sync

import django_ojs as ojs
from django_ojs.spec.errors import Conflict, WorkflowNotFound
from django_ojs.testing import Drained, TestContext
from tests.testapp.testing_jobs import collect, send


@pytest.fixture(params=["real", "fake"])
def context(request: pytest.FixtureRequest) -> TestContext:
    opened: TestContext = request.getfixturevalue("ojs" if request.param == "real" else "ojs_fake")
    return opened


def test_a_chain_runs_with_the_results_before_each_step(context: TestContext) -> None:
    workflow = ojs.chain(
        send.s("ada"), ojs.group(send.s("eve"), send.s("bob")), collect.s("end"), name="order"
    ).enqueue()
    assert (workflow.type, workflow.name, workflow.state) == ("chain", "order", "running")
    context.assert_enqueued(send, args=["ada"], count=1)
    context.refute_enqueued(collect)
    assert context.drain() == Drained(completed=4)
    (last,) = context.assert_completed(collect)
    assert last.result == {"parent_results": ["ada", ["eve", "bob"]]}
    stored = workflow.workflow()
    assert (stored.state, stored.jobs_total, stored.jobs_completed) == ("completed", 4, 4)


def test_a_failed_step_ends_the_chain(context: TestContext) -> None:
    context.fail_all(send, ValueError("no"))
    workflow = ojs.chain(send.s("ada"), collect.s()).enqueue()
    assert context.drain(with_retries=True) == Drained(retryable=1, discarded=1)
    context.refute_enqueued(collect)
    assert workflow.workflow().state == "failed"


def test_a_callback_runs_once_with_all_results(context: TestContext) -> None:
    once = send.options(retry={"max_attempts": 1})
    context.fail_next(send, ValueError("no"))
    workflow = ojs.batch(
        once.s("ada"), once.s("eve"), on_failure=collect.s("failure"), on_success=collect.s("no")
    ).enqueue()
    context.drain()
    (callback,) = context.assert_completed(collect)
    assert callback.args == ["failure"]
    # Which of the two is first is not said: both were available at once.
    assert callback.result["parent_results"] in ([None, "eve"], ["ada", None])
    assert workflow.workflow().state == "completed"


def test_a_cleared_workflow_runs_no_callback(context: TestContext) -> None:
    ojs.batch(
        send.s("ada"), on_complete=collect.s("late"), on_failure=collect.s("failed")
    ).enqueue()
    context.clear()
    send.enqueue("eve")
    context.drain()
    context.refute_enqueued(collect)


def test_a_graph_starts_a_step_after_those_it_names(context: TestContext) -> None:
    ojs.graph(
        ojs.step("ship", collect.s(), after=["label", "charge"]),
        ojs.step("charge", send.s("charged")),
        ojs.step("label", send.s("printed")),
    ).enqueue()
    context.drain()
    (ship,) = context.assert_completed(collect)
    assert ship.result == {"parent_results": ["printed", "charged"]}


def test_a_cancelled_workflow_starts_nothing_more(context: TestContext) -> None:
    workflow = ojs.chain(send.s("ada"), collect.s()).enqueue()
    assert ojs.cancel_workflow(workflow.id).state == "cancelled"
    assert context.drain() == Drained()
    with pytest.raises(Conflict):
        ojs.cancel_workflow(str(workflow.id))
    with pytest.raises(WorkflowNotFound):
        ojs.get_workflow(ojs.new_id())


def test_inline_all_steps_have_run_when_the_enqueue_returns(ojs_inline: TestContext) -> None:
    workflow = ojs.chain(send.s("ada"), ojs.batch(send.s("eve"), on_complete=collect.s())).enqueue()
    (callback,) = ojs_inline.assert_completed(collect)
    assert callback.result == {"parent_results": ["eve"]}
    assert workflow.workflow().state == "completed"


def test_inline_the_error_of_a_step_is_raised(ojs_inline: TestContext) -> None:
    ojs_inline.fail_next(send, ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        ojs.chain(send.s("ada"), collect.s()).enqueue()
    ojs_inline.refute_enqueued(collect)


def test_a_job_cancelled_in_memory_fails_its_workflow(ojs_fake: TestContext) -> None:
    workflow = ojs.chain(send.s("ada"), collect.s()).enqueue()
    (job,) = ojs_fake.enqueued(send)
    ojs.cancel(job.pk)
    assert workflow.workflow().state == "failed"
    ojs_fake.clear()
    with pytest.raises(WorkflowNotFound):
        workflow.workflow()


@pytest.mark.django_db
def test_the_async_twins() -> None:
    async def scene() -> list[str]:
        workflow = await ojs.chain(send.s("ada")).aenqueue()
        return [
            (await workflow.aworkflow()).state,
            (await ojs.acancel_workflow(workflow.id)).state,
            (await ojs.aget_workflow(workflow.id)).state,
        ]

    assert async_to_sync(scene)() == ["running", "cancelled", "cancelled"]

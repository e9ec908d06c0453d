"""Workflows in a project's tests: `drain` runs them step by step."""

from __future__ import annotations

from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync

import django_ojs as ojs
from django_ojs.handler_registry import registry
from django_ojs.spec.errors import Conflict, DuplicateJob, WorkflowNotFound
from django_ojs.testing import Drained, TestContext
from tests.testapp.testing_jobs import collect, send


@pytest.fixture
def context(ojs: TestContext) -> TestContext:
    return ojs


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


def test_fake_the_definition_and_the_first_jobs_are_recorded(ojs_fake: TestContext) -> None:
    # This test may not use a database: pytest-django would raise.
    workflow = ojs.chain(
        send.s("ada"), ojs.group(send.s("eve"), send.s("bob")), collect.s(), name="order"
    ).enqueue()
    ojs_fake.assert_enqueued(send, args=["ada"], count=1)
    ojs_fake.refute_enqueued(collect)
    found = workflow.workflow()
    assert (found.type, found.name, found.state) == ("chain", "order", "running")
    assert (found.jobs_total, found.queues) == (4, ["default", "email"])
    assert ojs.cancel_workflow(workflow.id).state == "cancelled"
    assert [job.state for job in ojs_fake.enqueued()] == ["cancelled"]
    with pytest.raises(Conflict):
        ojs.cancel_workflow(workflow.id)
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


def test_a_later_step_whose_unique_policy_finds_another_job_fails(context: TestContext) -> None:
    policy = ojs.UniquePolicy(keys=("type", "args"))
    unique = send.options(unique=policy)
    # Due later, so that it waits while the others run.
    ojs.enqueue("testing.send", ["ada"], unique=policy, scheduled_at=timedelta(hours=1))
    workflow = ojs.chain(send.s("eve"), unique.s("ada"), collect.s("after")).enqueue()
    context.drain()
    context.refute_enqueued(collect)
    assert workflow.workflow().state == "failed"
    with pytest.raises(DuplicateJob):
        ojs.chain(unique.s("ada"), collect.s("after")).enqueue()
    with pytest.raises(DuplicateJob):
        ojs.group(send.s("bob"), unique.s("ada"), send.s("bob")).enqueue()
    context.refute_enqueued(send, args=["bob"])


def test_inline_all_members_run_and_then_the_callbacks_before_the_exception(
    ojs_inline: TestContext,
) -> None:
    once = send.options(retry={"max_attempts": 1})
    ojs_inline.fail_next(send, ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        ojs.batch(
            once.s("ada"), once.s("eve"), on_failure=collect.s("f"), on_complete=collect.s("c")
        ).enqueue()
    assert [job.args for job in ojs_inline.enqueued(send)] == [["ada"], ["eve"]]
    assert {job.args[0] for job in ojs_inline.assert_completed(collect)} == {"f", "c"}


def test_inline_a_handler_may_cancel_its_own_job(
    ojs_inline: TestContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "handlers", dict(registry.handlers))

    @ojs.job("testing.cancel_own")
    def cancel_own(ctx: ojs.JobContext) -> str:
        ojs.cancel(ctx.job.id)
        return "ignored"

    cancel_own.enqueue()
    assert [job.state for job in ojs_inline.enqueued(cancel_own)] == ["cancelled"]

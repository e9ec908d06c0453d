"""Workflows in Python: what the builders describe, and what they reject."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import django_ojs as ojs
from django_ojs.enqueue_options import Request
from django_ojs.spec.errors import CyclicDependency, InvalidArgs, InvalidRequest, OJSError
from tests.cases import together
from tests.testapp.testing_jobs import save, send

ADA = send.s("ada")
SENT = {"type": "testing.send", "args": ["ada"], "options": {"queue": "email"}}


def described(workflow: ojs.WorkflowRequest) -> dict[str, Any]:
    """The definition without what the defaults of the handler add to each job."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(each) for name, each in value.items() if name != "retry"}
        return [plain(each) for each in value] if isinstance(value, list) else value

    found: dict[str, Any] = plain(workflow.definition())
    return found


def test_a_chain_with_a_group() -> None:
    workflow = ojs.chain(ADA, ojs.group(ADA, ADA, name="both"), save.s("x"), name="order")
    assert described(workflow) == {
        "type": "chain",
        "name": "order",
        "steps": [
            SENT,
            {"type": "group", "name": "both", "jobs": [SENT, SENT]},
            {"type": "testing.save", "args": ["x"], "options": {"queue": "default"}},
        ],
    }
    assert workflow.graph().type == "chain"


def test_a_batch() -> None:
    workflow = ojs.batch(ADA, on_failure=ADA)
    assert described(workflow) == {
        "type": "batch",
        "jobs": [SENT],
        "callbacks": {"on_failure": SENT},
    }


def test_a_graph() -> None:
    workflow = ojs.graph(
        ojs.step("charge", ADA),
        ojs.step("print", ojs.group(ADA)),
        ojs.step("ship", ADA, after=["charge", "print"]),
        name="order",
    )
    assert described(workflow) == {
        "name": "order",
        "steps": [
            {**SENT, "id": "charge", "depends_on": []},
            {"type": "group", "jobs": [SENT], "id": "print", "depends_on": []},
            {**SENT, "id": "ship", "depends_on": ["charge", "print"]},
        ],
    }
    assert [step.name for step in workflow.graph().steps] == ["charge", None, "print", "ship"]


def test_options_of_a_step() -> None:
    step = send.options(priority=5, scheduled_at=timedelta(minutes=5)).s("ada", template="bye")
    job = ojs.chain(step).graph().steps[0].job
    assert job is not None
    assert job["args"] == ["ada", "bye"]
    assert job["options"]["priority"] == 5
    assert job["options"]["scheduled_at"] == "+PT5M"
    assert "id" not in job


def test_a_type_without_a_handler_here() -> None:
    step = ojs.request("elsewhere.run", [1])
    assert ojs.chain(step).graph().steps[0].job == {
        "type": "elsewhere.run",
        "args": [1],
        "options": {"queue": "default"},
    }


@together(
    ("make", "error", "message"),
    [
        (lambda: send.s(), InvalidArgs, "The arguments do not fit testing.send"),
        (lambda: ojs.chain([ADA]), TypeError, "chain needs jobs, .* not a list. Write a \\*"),
        (lambda: ojs.group(send), TypeError, r"group needs jobs, .* write \.s\(\.\.\.\) after"),
        (
            lambda: ojs.batch("x"),
            TypeError,
            r"batch needs jobs, .* not a str\. .* without \.s runs",
        ),
        (lambda: ojs.batch(ADA, on_success=send), TypeError, r"on_success of a batch .* write \.s"),
        (lambda: ojs.batch(ADA, on_complete=ojs.chain(ADA)), TypeError, r"on_complete .* one job"),
        (lambda: ojs.graph(ADA), TypeError, r"graph\(\) needs steps made by ojs.step\(name, job\)"),
        (lambda: ojs.step("a", "b"), TypeError, r"step\('a'\) needs jobs"),
        (lambda: ojs.step("a", ADA, after="b"), TypeError, r"needs a list: after=\['b'\]"),
    ],
)
def test_rejected_at_once(make: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


@together(
    ("workflow", "message"),
    [
        (ojs.chain(), "steps must contain at least one element"),
        (ojs.batch(ADA), "callbacks must hold at least one of"),
        (
            ojs.chain(ADA, ojs.group(send.options(id=ojs.new_id()).s("ada"))),
            "steps[1].jobs[0].id is no option of a step",
        ),
        (
            ojs.batch(ADA, on_success=send.options(on_full="outbox").s("ada")),
            "callbacks.on_success.on_full is no option of a step",
        ),
        (
            ojs.group(ADA, send.options(priority=500).s("ada")),
            "jobs[1].priority must be between",
        ),
        (
            ojs.group(ADA, send.options(scheduled_at="noon").s("ada")),
            "jobs[1].scheduled_at",
        ),
        (ojs.chain(ojs.graph(ojs.step("a", ADA))), "steps[0] must not be a graph"),
        (
            ojs.graph(ojs.step("a", ADA), ojs.step("b", ADA, after=["c"])),
            "steps[1].depends_on[0] is not the id of a step",
        ),
    ],
)
def test_rejected_with_the_path(workflow: ojs.WorkflowRequest, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        workflow.graph()
    assert caught.value.message.startswith(message)
    assert message.startswith(caught.value.details["field"])


def test_a_cycle() -> None:
    with pytest.raises(CyclicDependency) as caught:
        ojs.graph(ojs.step("a", ADA, after=["b"]), ojs.step("b", ADA, after=["a"])).graph()
    assert caught.value.hint == "steps[0] is step('a'), which waits for 'b'."


def test_a_rejected_step_is_named_as_its_author_named_it() -> None:
    wrong = ojs.graph(ojs.step("label", ADA), ojs.step("ship", ADA, after=["lable"]))
    with pytest.raises(InvalidRequest) as caught:
        wrong.enqueue()
    assert caught.value.hint == (
        "steps[1] is step('ship'), which waits for 'lable'. Did you mean 'label'?"
    )
    # Not itself, which would be a cycle.
    with pytest.raises(InvalidRequest) as caught:
        ojs.graph(ojs.step("ship", ADA, after=["shipp"])).enqueue()
    assert caught.value.hint == "steps[0] is step('ship'), which waits for 'shipp'."
    with pytest.raises(InvalidRequest) as caught:
        ojs.graph(ojs.step("a", ADA), ojs.step("a", ADA)).enqueue()
    assert caught.value.hint == "steps[1] is step('a')."


def test_s_is_typed_as_the_handler_is() -> None:
    assert isinstance(ADA, Request)
    assert issubclass(CyclicDependency, OJSError)

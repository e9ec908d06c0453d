"""`manage.py ojs workflows`."""

from __future__ import annotations

import pytest

import django_ojs as ojs
from django_ojs.extensions.audit.models import AuditEntry
from django_ojs.extensions.workflows import operations as workflows
from django_ojs.operations import ack, fail, fetch
from django_ojs.spec import ids
from tests.command_line.run import ojs as run
from tests.factories import BOOM, read
from tests.http.api import NOBODY

pytestmark = [pytest.mark.django_db, pytest.mark.once]


def claim(queue: str) -> str:
    (found,) = fetch.fetch([queue])
    return str(found.id)


@pytest.mark.both
@pytest.mark.both
def test_an_operator_finds_a_workflow_that_does_not_go_on_and_cancels_it() -> None:
    assert run("workflows", "list").out == "No workflows.\n"
    order = ojs.graph(
        ojs.step("charge", ojs.request("shop.charge", queue="pay")),
        ojs.step("label", ojs.request("shop.label", queue="labels")),
        ojs.step("tell", ojs.request("shop.tell"), after=["charge", "label"]),
        name="order 7",
    ).enqueue()
    retry = {"max_attempts": 1}
    sums = ojs.chain(ojs.request("shop.sum", queue="sums", retry=retry)).enqueue()
    fail.fail(ids.parse_id(claim("sums")), BOOM)
    charged = claim("pay")
    ack.ack(ids.parse_id(charged))
    workflows.advance_due()
    label = claim("labels")

    listed = run("workflows", "list")
    failed, running = listed.out.splitlines()[1:]
    assert failed.split()[:7] == [str(sums.id), "chain", "-", "failed", "1", "0", "1"]
    assert [str(order.id), "graph", "order 7", "running", "3", "1", "0"] == [
        word for word in (part.strip() for part in running.split("  ")) if word
    ][:7]
    assert str(order.id) in run("workflows", "list", "--state", "running").out
    assert "There are more: --after=" in run("workflows", "list", "--limit", "1").out
    assert run("workflows", "list", "--state", "completed").out == "No workflow is in this state.\n"

    # Each step with its job, and what it waits for.
    shown = run("workflows", "show", order.id)
    rows = {line.split()[0]: line.split() for line in shown.out.splitlines() if "shop." in line}
    assert rows["charge"][1:5] == ["shop.charge", "completed", charged, "-"]
    assert rows["label"][1:5] == ["shop.label", "active", label, "-"]
    assert rows["tell"][1:5] == ["shop.tell", "waiting", "-", "label"]
    assert "1 of 3 completed, 0 failed" in shown.out
    assert f"manage.py ojs show {label}" in shown.out
    assert "Boom" in run("workflows", "show", sums.id).out
    steps = run("workflows", "show", order.id, "--json").json["steps"]
    assert [(each["name"], each["state"], each["job_state"]) for each in steps] == [
        *(("charge", "completed", None), ("label", "enqueued", "active")),
        ("tell", "waiting", None),
    ]
    assert steps[2]["depends_on"] == ["charge", "label"]

    # It asks, each id has its result, and the audit trail has who it was.
    rejected = run("workflows", "cancel", order.id)
    assert (rejected.code, "confirm with --yes" in rejected.err) == (2, True)
    assert workflows.get(order.id).state == "running"
    cancelled = run("workflows", "cancel", order.id, sums.id, "--yes")
    assert cancelled.out == "Workflow order 7 is cancelled.\n"
    assert (cancelled.code, f"{sums.id}: The workflow has ended" in cancelled.err) == (1, True)
    assert read(ids.parse_id(label)).state == "cancelled"
    entry = AuditEntry.primary.get(action="workflow.cancelled")
    assert entry.actor.endswith("(manage.py ojs)"), entry.actor
    again = run("workflows", "cancel", order.id, "--yes", "--json")
    assert "error" in again.json["workflows"][str(order.id)]


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (("cancel", "--yes"), 2, "Name the workflow by its id"),
        (("show",), 2, "Name the workflow by its id"),
        (("show", "no-id"), 2, "must be"),
        (("show", NOBODY), 1, "no workflow with"),
        (("list", NOBODY), 2, "workflows show ID"),
        (("list", "--after", "x"), 2, "must be"),
        (("list", "--state", "odd"), 1, "invalid choice"),
    ],
)
def test_what_cannot_be_says_what_can(arguments: tuple[str, ...], code: int, problem: str) -> None:
    found = run("workflows", *arguments)
    assert (found.code, problem in found.err) == (code, True), found

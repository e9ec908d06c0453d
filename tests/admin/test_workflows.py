"""The pages of workflows: the list, the picture of the steps, cancel."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

import django_ojs as ojs
from django_ojs.extensions.audit.models import AuditEntry
from django_ojs.extensions.workflows.admin_diagram import (
    MAX_ROWS,
    MAX_WIDTH,
    Diagram,
    StepRow,
    diagram,
)
from django_ojs.extensions.workflows.models import StepState, Workflow
from django_ojs.extensions.workflows.spec.parse import parse
from django_ojs.models import Job
from django_ojs.testing import TestContext
from tests.admin.test_pages import BASE, BUDGET, budget
from tests.admin.users import at, root, staff
from tests.testapp.testing_jobs import collect, send

pytestmark = [pytest.mark.django_db, pytest.mark.once]

LIST = at("workflow/")


def text(client: Client, address: str) -> str:
    response = client.get(address)
    assert response.status_code == 200
    return " ".join(response.content.decode().split())


def order(labels: int = 2) -> ojs.EnqueuedWorkflow:
    return ojs.chain(
        send.s("ada"),
        ojs.group(*[send.s(f"label {n}") for n in range(labels)]),
        collect.s(),
        name="order",
    ).enqueue()


def page_of(workflow: ojs.EnqueuedWorkflow) -> str:
    return f"{LIST}{workflow.id}/change/"


def test_the_empty_list_says_how_to_make_one() -> None:
    assert "ojs.chain(" in text(root(), LIST)
    assert "No workflow matches these filters" in text(root("second"), f"{LIST}?q=x")


@pytest.mark.both
@pytest.mark.both
def test_the_list_shows_progress_and_filters(ojs: TestContext) -> None:
    order()
    ojs.drain(max_jobs=2)
    cancelled = ojs_chain()
    client = root()
    page = text(client, LIST)
    assert "2 of 4 completed" in page
    assert "▶</span> running" in page
    assert "⊘</span> cancelled" in page
    running = text(client, f"{LIST}?state=running")
    assert "order" in running
    assert str(cancelled.id) not in running
    assert str(cancelled.id) not in text(client, f"{LIST}?q=ord")


def ojs_chain() -> ojs.EnqueuedWorkflow:
    cancelled = ojs.chain(send.s("eve")).enqueue()
    ojs.cancel_workflow(cancelled.id)
    return cancelled


def test_the_page_shows_each_step_with_its_state_and_links_to_its_job(ojs: TestContext) -> None:
    workflow = order()
    ojs.drain(max_jobs=2)
    page = text(root(), page_of(workflow))
    first = Job.objects.order_by("pk").first()
    assert first is not None
    assert page.count(f'href="{BASE}job/{first.pk}/change/"') == 2
    assert page.count(">✓ completed<") == 2
    assert page.count(">● available<") == 1
    assert page.count(">○ waiting<") == 1
    assert f"workflow/{workflow.id}/change/" in text(root("b"), f"{BASE}job/{first.pk}/change/")


def test_the_steps_are_filtered_by_state(ojs: TestContext) -> None:
    ojs.fail_next(send, ValueError("a secret"), times=2)
    workflow = order()
    ojs.drain(with_retries=True)
    address = f"{page_of(workflow)}?state=failed"
    page = text(root(), address)
    assert "a secret" in page
    assert page.count('<th scope="row" class="ojs-cell">') == 1
    assert "a secret" not in text(staff("view_workflow"), address)
    assert "No step is in this state now" in text(root("b"), f"{page_of(workflow)}?state=active")


def test_cancel_asks_first_and_needs_the_permission() -> None:
    workflow = order()
    client = staff("view_workflow", "operate_job")
    assert "Cancel…" in text(client, page_of(workflow))
    action = f"{LIST}action/cancel/"
    assert "never start" in text(client, f"{action}?key={workflow.id}")
    assert workflow.workflow().state == "running"
    client.post(action, {"key": str(workflow.id), "confirmed": "1"})
    assert workflow.workflow().state == "cancelled"
    assert AuditEntry.primary.get().object_id == str(workflow.id)
    assert "Cancel…" not in text(client, page_of(workflow))
    assert "Cancel…" not in text(staff("view_workflow", name="bob"), page_of(order()))


def test_the_page_has_a_budget_however_many_steps() -> None:
    few = budget(page_of(order()))
    assert few <= BUDGET
    assert budget(page_of(order(300))) <= few


def test_a_pruned_workflow_is_not_found() -> None:
    assert root().get(f"{LIST}{ojs.new_id()}/change/").status_code == 404


def test_a_large_workflow_has_no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_ojs.extensions.workflows.admin.MAX_DRAWN", 3)
    page = text(root(), page_of(order()))
    assert "too many jobs for a picture" in page
    assert "<svg" in page  # The progress.
    assert "ojs-workflow" in page


# The picture.


def drawn(definition: dict[str, Any], **states: str) -> Diagram:
    """Draw a definition; `states` are those of steps, by type."""
    steps = parse(definition).steps
    dependents: dict[str, list[int]] = {step.key: [] for step in steps}
    for index, step in enumerate(steps):
        for key in step.depends_on:
            dependents[key].append(index)
    return diagram(
        [
            StepRow(
                id=index,
                position=index,
                key=step.key,
                name=step.name,
                type=None if step.job is None else step.job["type"],
                callback=step.callback,
                state=states.get(str((step.job or {}).get("type")), StepState.WAITING),
                dependents=dependents[step.key],
            )
            for index, step in enumerate(steps)
        ]
    )


def job(type: str) -> dict[str, Any]:
    return {"type": type, "args": []}


def chain(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "chain", "steps": list(steps)}


def group(*jobs: dict[str, Any]) -> dict[str, Any]:
    return {"type": "group", "jobs": list(jobs)}


def labels(found: Diagram) -> list[str]:
    return [node.label for node in found.nodes]


def test_few_steps_are_drawn_one_by_one() -> None:
    found = drawn(chain(job("a"), group(job("b"), job("b")), job("c")), a="completed")
    assert labels(found) == ["a", "b", "b", "c"]
    assert [node.level for node in found.nodes] == ["good", "", "", ""]
    assert len(found.edges) == 4
    assert len({node.y for node in found.nodes}) == 3
    assert found.description.startswith("a: ✓ completed; b: ○ waiting")


def test_a_wide_group_is_one_node_with_counts() -> None:
    found = drawn(chain(job("a"), group(*[job("b")] * 200), job("c")), a="failed")
    assert labels(found) == ["a", "200 of b", "c"]
    assert found.nodes[1].text == "○200"
    assert len(found.edges) == 2
    assert found.nodes[0].level == "bad"


def test_groups_of_chains_are_as_many_nodes_as_their_steps() -> None:
    found = drawn(group(*[chain(job("a"), job("b"), job("c"))] * 60))
    assert labels(found) == ["60 of a", "60 of b", "60 of c"]
    assert len(found.edges) == 2


def test_side_by_side_chains_keep_their_own_lines() -> None:
    assert len(drawn(group(*[chain(job("a"), job("b"))] * 3)).edges) == 3


def test_many_types_side_by_side_are_one_node() -> None:
    found = drawn(chain(group(*[job(f"t{n}") for n in range(20)]), job("end")), t3="failed")
    assert labels(found) == ["20 steps", "end"]
    assert found.nodes[0].text == "○19 ✕1"
    assert found.nodes[0].level == "bad"


def test_a_long_chain_is_short() -> None:
    found = drawn(chain(*[job(f"t{n}") for n in range(500)]))
    assert len(found.nodes) == MAX_ROWS + 1
    assert "470 steps" in labels(found)
    assert len(found.edges) == MAX_ROWS


def test_the_callbacks_of_a_batch_follow_its_members() -> None:
    definition = {
        "type": "batch",
        "jobs": [job("a")] * 9,
        "callbacks": {"on_failure": job("f"), "on_success": job("s")},
    }
    found = drawn(chain(definition, job("end")), s="skipped")
    assert labels(found) == ["9 of a", "s", "f", "end"]
    assert [node.text for node in found.nodes[1:3]] == [
        "∅ skipped · on_success",
        "○ waiting · on_failure",
    ]
    # None from the members to the step after the batch, which waits for the callbacks too.
    assert len(found.edges) == 4


@pytest.mark.parametrize("size", [1, 7, 40])
def test_the_picture_is_never_larger_than_its_bounds(size: int) -> None:
    wide = [group(*[job(f"t{n}-{m}") for n in range(size)]) for m in range(size)]
    found = drawn(chain(*wide))
    assert len({node.y for node in found.nodes}) <= MAX_ROWS + 1
    assert max(node.x for node in found.nodes) < MAX_WIDTH * 200
    numbers = re.findall(r"-?\d+", " ".join(found.edges))
    assert all(0 <= int(number) <= max(found.width, found.height) for number in numbers)


def test_the_picture_of_a_stored_workflow_is_of_all_its_steps() -> None:
    workflow = Workflow.objects.get(pk=order(3).id)
    assert workflow.jobs_ended == 0
    assert text(root(), f"{LIST}{workflow.pk}/change/").count("<title>") == 6


@pytest.mark.both
def test_the_page_says_why_a_workflow_waits_how_old_it_is_and_how_long_steps_took(
    ojs: TestContext,
) -> None:
    unnamed = ojs_of_two()
    client = root()
    # A name of its steps stands for the one that it does not have.
    assert ">chain of testing.send</a>" in text(client, LIST)
    page = text(client, page_of(unnamed))
    assert re.search(r'ojs-not-running"><a [^>]*>[^<]+</a>: No worker takes jobs from', page)
    assert re.search(r"chain · for \S+", page)
    ojs.drain(max_jobs=1)
    page = text(client, page_of(unnamed))
    rows = re.findall(r'data-label="Took">([^<]*)</td>', page)
    assert len(rows) == 2
    assert rows[0] != "—"
    assert rows[1] == "—"
    ojs.drain()
    page = text(client, page_of(unnamed))
    assert "ojs-not-running" not in page
    assert re.search(r"chain · took \S+", page)


def ojs_of_two() -> ojs.EnqueuedWorkflow:
    return ojs.chain(send.s("ada"), collect.s()).enqueue()

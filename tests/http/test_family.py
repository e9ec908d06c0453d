"""Which job enqueued which: handlers, workflows, copies, and what is read of it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from django.test import override_settings

from django_ojs.models import Job
from django_ojs.operations import ack, fetch, run_again
from django_ojs.operations.jobs.family import MAX_GENERATIONS, descendants
from django_ojs.testing import TestContext
from tests.factories import in_state, jobs, push, push_many, read
from tests.http.api import NOBODY, Api, make_key
from tests.testapp import testing_jobs as handlers

pytestmark = pytest.mark.django_db

api = Api()


def family(key: Any) -> Any:
    return api.get(f"jobs/{key}/lineage").ok()


def only(type: str) -> Job:
    return jobs().get(type=type)


@pytest.mark.requirement("EH-15", "EH-S01")
def test_what_a_handler_enqueues_has_its_job_as_parent(ojs: TestContext) -> None:
    root = handlers.family.enqueue().id
    assert ojs.drain().completed == 7
    (first,) = jobs().filter(type="testing.chain", args=[1])
    (second,) = jobs().filter(type="testing.chain", args=[0])
    step, last = only("testing.save"), only("testing.collect")
    batch = list(jobs().filter(type="testing.send"))
    assert read(root).parent_id is None
    assert "root_id" not in api.get(f"jobs/{root}").ok()["job"]
    # The second step too, which starts after the handler has ended.
    assert {each.parent_id for each in (first, *batch, step, last)} == {root}
    assert second.parent_id == first.pk
    shown = api.get(f"jobs/{second.pk}").ok()["job"]
    assert (shown["parent_id"], shown["root_id"]) == (str(first.pk), str(root))
    assert family(last.pk)["workflow_id"] == str(last.workflow_id) == str(step.workflow_id)
    body = family(root)
    assert (body["parent_id"], body["workflow_id"], body["has_more"]) == (None, None, False)
    assert body["job_id"] == body["root_id"] == str(root)
    tree = {each["job_id"]: each["children"] for each in body["children"]}
    assert list(tree) == sorted(str(each.pk) for each in (first, *batch, step, last))
    (below,) = tree.pop(str(first.pk))
    assert not any(tree.values())
    assert below == {
        "job_id": str(second.pk),
        "type": "testing.chain",
        "queue": second.queue,
        "state": "completed",
        "children": [],
    }
    found = family(second.pk)
    assert (found["parent_id"], found["root_id"]) == (str(first.pk), str(root))


def test_a_coroutine_is_a_parent_and_what_comes_after_a_handler_is_no_child(
    ojs: TestContext,
) -> None:
    root = handlers.afamily.enqueue().id
    ojs.drain()
    assert only("testing.send").parent_id == root
    assert push().parent_id is None


def test_in_memory_too(ojs_fake: TestContext) -> None:
    ojs_fake.perform(handlers.family)
    parents = {job.parent_id for job in ojs_fake.enqueued()}
    assert len(parents) == 1
    assert None not in parents


def test_a_copy_has_the_job_it_copies_as_parent() -> None:
    first = in_state("completed")
    copy = run_again.run_again(first.pk).id
    ack.ack(fetch.fetch([first.queue])[0].id)
    again = run_again.run_again(copy).id
    assert read(copy).parent_id == first.pk
    assert family(again)["root_id"] == str(first.pk)


@pytest.mark.requirement("EH-15")
def test_a_worker_over_http_names_the_parent_and_gets_it_back() -> None:
    first = push(queue="mine")
    second = api.post("jobs", {"type": "a", "args": [], "parent_id": str(first.pk)}).ok(201)["job"]
    assert (second["parent_id"], second["root_id"]) == (str(first.pk), str(first.pk))
    third = {"type": "b", "args": [], "queue": "q", "parent_id": second["id"]}
    batch = api.post("jobs/batch", {"jobs": [third, third | {"root_id": NOBODY}]}).ok(201)["jobs"]
    assert [each["root_id"] for each in batch] == [str(first.pk), NOBODY]
    (fetched,) = api.post("workers/fetch", {"queues": ["q"]}).ok()["jobs"]
    assert (fetched["parent_id"], fetched["root_id"]) == (second["id"], str(first.pk))
    for name in ("parent_id", "root_id"):
        wrong = {"type": "a", "args": [], name: "x"}
        api.post("jobs", wrong).error(400, "invalid_request", field=name)


@override_settings(OJS={})
def test_what_is_in_another_queue_is_left_out() -> None:
    mine = push(queue="mine")
    theirs = push(queue="other", parent_id=mine.pk)
    push(queue="mine", parent_id=theirs.pk)
    own = push(queue="mine", parent_id=mine.pk)
    limited = Api(make_key("admin", queues=("mine",)))
    body = limited.get(f"jobs/{mine.pk}/lineage").ok()
    assert [each["job_id"] for each in body["children"]] == [str(own.pk)]
    limited.get(f"jobs/{theirs.pk}/lineage").error(403, "PERMISSION_DENIED")
    # Nor does it learn the root of a job that it may not read.
    job = {"type": "a", "args": [], "queue": "mine", "parent_id": str(theirs.pk)}
    assert "root_id" not in limited.post("jobs", job).ok(201)["job"]


@pytest.mark.both
def test_a_family_is_read_by_its_generations_up_to_a_limit() -> None:
    root = push()
    children = [push(parent_id=root.pk) for _ in range(3)]
    grandchildren = [push(parent_id=child.pk) for child in children]
    Job.primary.filter(pk=root.pk).update(parent_id=grandchildren[0].pk)
    for limit, more in ((6, False), (5, True), (3, True), (2, True)):
        found, has_more = descendants(root.pk, limit=limit)
        number = len(found) + sum(len(each.children) for each in found)
        # In a circle, which only clients make, the job itself is no descendant.
        assert (number, has_more) == (limit, more or limit < 6), limit
    assert len(found) == 2


def test_a_long_chain_is_read_up_to_its_hundredth_generation() -> None:
    # A handler that enqueues the next job at each run.
    root, *later = push_many(500)
    for before, job in pairwise([root, *later]):
        job.parent_id = before.pk
    Job.primary.bulk_update(later, ["parent_id"])
    body = family(root.pk)
    assert body["has_more"] is True
    depth, below = 0, body["children"]
    while below:
        depth, below = depth + 1, below[0]["children"]
    assert depth == MAX_GENERATIONS == 100
    # A hundred generations and no more.
    assert family(later[-101].pk)["has_more"] is False

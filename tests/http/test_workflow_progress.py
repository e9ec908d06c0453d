"""The progress of workflows: the mean of their steps, and of batches the share of their jobs."""

from __future__ import annotations

from typing import Any

import pytest

from django_ojs.extensions.workflows import operations as workflows
from django_ojs.extensions.workflows.operations import progress
from django_ojs.models import Job
from django_ojs.operations import ack, fail, fetch
from django_ojs.operations.progress import report
from django_ojs.spec.failure import Failure
from django_ojs.spec.progress import Report
from tests.http.api import NOBODY, Api

pytestmark = pytest.mark.django_db

api = Api()
JOB = {"type": "a", "args": [], "queue": "w"}


def create(type: str, number: int, **values: Any) -> str:
    listed = "steps" if type == "chain" else "jobs"
    made = api.post("workflows", {"type": type, listed: [JOB] * number, **values}).ok(201)
    return str(made["workflow"]["id"])


def read(key: str) -> Any:
    return api.get(f"workflows/{key}/progress").ok()


def take() -> Job:
    (job,) = fetch.fetch(["w"])
    return Job.primary.get(pk=job.id)


def end(job: Job, *, fails: bool = False) -> None:
    if fails:
        fail.fail(job.pk, Failure(type="Boom", message="x", retryable=False))
    else:
        ack.ack(job.pk)
    workflows.advance_due()


@pytest.mark.requirement("PRG-R004")
def test_a_chain_is_as_far_as_its_completed_steps_and_the_share_of_the_one_that_runs() -> None:
    key = create("chain", 4)
    assert read(key)["progress"] == 0
    end(take())
    running = take()
    report(running.pk, Report(progress=0.5, data={"rows": 7}))
    found = read(key)
    assert (found["workflow_id"], found["type"], found["state"]) == (key, "chain", "running")
    assert found["progress"] == (1 + 0.5) / 4
    assert [step["state"] for step in found["steps"]] == [
        "completed",
        "active",
        "waiting",
        "waiting",
    ]
    assert [step["progress"] for step in found["steps"]] == [1, 0.5, None, None]
    assert found["steps"][1]["data"] == {"rows": 7}
    end(running)
    for _ in range(2):
        end(take())
    response = api.get(f"workflows/{key}/progress")
    assert response.ok()["progress"] == 1
    assert response.headers["X-OJS-Progress"] == "1.0"
    assert response.headers["Cache-Control"] == "no-cache, private"
    api.get(f"workflows/{NOBODY}/progress").error(404, "not_found")


@pytest.mark.both
def test_a_group_is_the_mean_and_a_failed_job_keeps_its_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = create("group", 4)
    one, two, three = take(), take(), take()
    report(one.pk, Report(progress=0.6, data={"rows": 1}))
    report(two.pk, Report(progress=0.2))
    end(one, fails=True)
    end(three)
    assert read(key)["progress"] == pytest.approx((0.6 + 0.2 + 1) / 4)
    # Where very many run, their data is not read.
    monkeypatch.setattr(progress, "MAX_DATA", 0)
    assert read(key)["progress"] == pytest.approx((0.6 + 0.2 + 1) / 4)
    assert all("data" not in step for step in read(key)["steps"])


def test_a_batch_is_the_share_of_its_completed_jobs() -> None:
    key = create("batch", 2, callbacks={"on_complete": {**JOB, "type": "done"}})
    running = take()
    report(running.pk, Report(progress=0.5))
    assert read(key)["progress"] == 0
    end(running)
    assert read(key)["progress"] == 0.5
    assert len(read(key)["steps"]) == 2

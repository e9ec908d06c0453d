"""Steps of a worker in Node, against a gunicorn: it replays, sleeps, waits, and is killed."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from django_ojs.extensions import steps
from django_ojs.extensions.steps import operations
from django_ojs.extensions.steps.models import Step
from django_ojs.models import Attempt, Job, Worker
from django_ojs.worker.job_log import JobLog
from django_ojs.worker.maintenance import MaintenanceThread
from example_project.demo.node import unavailable_reason
from example_project.site_server import Site
from tests.example_project.node import QUEUE, Node, wait_for
from tests.example_project.test_node_worker import becomes, job_of
from tests.model_factories import ApiKeyFactory

NODE_UNAVAILABLE = unavailable_reason()

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.skipif(bool(NODE_UNAVAILABLE), reason=NODE_UNAVAILABLE or "Node is installed"),
]

Start = Callable[[], Node]


@pytest.fixture
def start(gunicorn: Site, transactional_db: None) -> Iterator[Start]:
    """Start workers of a gunicorn, while time passes."""
    _, key = ApiKeyFactory(scopes=["worker"], queues=[QUEUE])
    nodes: list[Node] = []

    def started() -> Node:
        # Three intervals are the time after which a worker counts as dead.
        nodes.append(Node(gunicorn.url, key, OJS_BEAT_MS="5000"))
        return nodes[-1]

    maintenance = MaintenanceThread("maintenance", JobLog())
    yield started
    for node in nodes:
        node.close()
    maintenance.close()


def history(key: UUID) -> list[tuple[str, str, int]]:
    found = Step.objects.filter(job_id=key).order_by("number")
    return [(step.name, step.outcome, step.attempts) for step in found]


def until_it_waits(key: UUID, name: str) -> None:
    waiting = Step.objects.filter(job_id=key, name=name, outcome="waiting")
    wait_for(lambda: waiting.exists() and becomes(key, "scheduled"), f"it does not wait: {name}")


def effects(file: Path) -> list[str]:
    return [line.partition(" ")[0] for line in file.read_text().splitlines()]


def test_a_killed_worker_s_job_goes_on_after_its_last_step(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "effects"
    key = job_of("test.steps", str(file))
    first = start()
    # It slept meanwhile, and this is its second run.
    wait_for(lambda: file.exists() and effects(file) == ["charge", "pack"], "it does not pack")
    first.send(signal.SIGKILL)
    first.wait()
    Worker.objects.filter(pk=first.id).update(dead_after_ms=100)
    second = start()
    until_it_waits(key, "sent")
    assert second.said("job suspended", job_id=str(key), attempt=3)
    steps.signal("sent", str(file), {"number": "CK1"})
    job = becomes(key, "completed")
    assert job.result == {
        "charge": "charge",
        "labels": ["label"] * 3,
        "parcel": {"number": "CK1"},
    }
    # Only the step in which it was killed has run twice, with the same key of idempotency.
    assert effects(file) == ["charge", "pack", "pack", "label", "label", "label"]
    assert len(set(file.read_text().splitlines())) == 5
    lost = Attempt.objects.get(job=key, outcome="lost")
    assert (lost.worker_id, job.attempt, job.spent) == (first.id, 4, 2)
    names = ["charge", "rest", "pack", "label", "label#2", "label#3", "sent"]
    assert [name for name, _, _ in history(key)] == names


def test_what_becomes_of_steps(start: Start, tmp_path: Path) -> None:
    # One test, because to start a server and a worker takes longer than their jobs.
    start()
    retries(tmp_path / "retries")
    is_not_retried_where_its_program_was_changed()
    waits_for_days("CK473124829BE")


def retries(file: Path) -> None:
    key = job_of("test.step-retries", str(file))
    job = becomes(key, "completed")
    assert job.result == {"charge": "paid", "refund": "closed", "timeout": "WaitTimedOut"}
    assert effects(file) == ["charge", "charge", "charge", "refund"]
    expected = [("charge", "done", 3), ("refund", "failed", 1), ("never", "timed_out", 0)]
    assert history(key) == expected
    assert job.spent == 1


def is_not_retried_where_its_program_was_changed() -> None:
    job = becomes(job_of("test.changed-program"), "discarded")
    assert job.error is not None
    assert (job.error["type"], job.attempt) == ("ProgramChanged", 2)
    assert history(job.pk) == [("attempt 1", "done", 1)]


def waits_for_days(parcel: str) -> None:
    key = job_of("parcel.return", parcel)
    until_it_waits(key, "parcel.arrived")
    steps.signal("parcel.arrived", parcel, {"weight": 2})
    until_it_waits(key, "objections")
    operations.end_wait(key)
    result: Any = becomes(key, "completed").result
    assert result["parcel"] == {"weight": 2}
    assert Job.objects.get(pk=key).spent == 1

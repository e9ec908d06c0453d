"""`backpressure.warning` and `.cleared`: one each time a queue crosses its threshold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from django.db import connection, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_ojs.extensions.backpressure.operations import pressure_monitor
from django_ojs.extensions.events.models import Event
from django_ojs.models import Job, Queue
from django_ojs.operations import push as pushing
from django_ojs.operations import queues
from django_ojs.operations.ack import ack
from django_ojs.operations.fail import fail
from django_ojs.operations.fetch import fetch
from django_ojs.operations.push import PushOptions
from django_ojs.storage import in_memory_state
from tests.factories import BOOM, EnvelopeFactory, hourly
from tests.outbox.conftest import remote as remote
from tests.outbox.remote import Remote
from tests.shells import Shell
from tests.threads import at_once
from tests.worker.waiting import BOUND, eventually

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

NAME = "bounded"


def bound(depth: int | None, *, queue: str = NAME, **more: Any) -> None:
    queues.configure(queue, {"backpressure": {"max_depth": depth, **more}})


def add(number: int = 1, *, queue: str = NAME) -> None:
    for _ in range(number):
        pushing.push(EnvelopeFactory(queue=queue, retry=hourly()), PushOptions(generated_ids=True))


def complete(number: int, queue: str = NAME) -> None:
    for job in fetch([queue], count=number):
        ack(job.pk)


def crossings(using: str = "default") -> list[str]:
    """Return `warning` and `cleared`, in the order of the events."""
    names = ("backpressure.warning", "backpressure.cleared")
    found = Event.objects.using(using).filter(type__in=names).order_by("id")
    return [event.type.partition(".")[2] for event in found]


def retries() -> None:
    """Fill a queue to 8 by failures: of these jobs, 4 ran while the others came."""
    bound(10, warning_threshold=0.5)
    add(4)
    running = fetch([NAME], count=4)
    add(4)
    for job in running:
        fail(job.pk, BOOM)


def test_failures_that_cross_the_threshold_are_published() -> None:
    retries()
    assert pressure_monitor.check_all() == 1
    assert pressure_monitor.check_all() == 0
    (event,) = Event.objects.filter(type="backpressure.warning")
    assert event.data == {"queue": NAME, "depth": 8, "bound": 10}
    Job.objects.filter(queue=NAME, state="retryable").delete()
    assert pressure_monitor.check_all() == 1
    assert crossings() == ["warning", "cleared"]


def test_without_a_worker_the_next_enqueue_publishes_that_failures_have_crossed_it() -> None:
    retries()
    while not crossings():
        add()
    add()
    assert crossings() == ["warning"]


@pytest.mark.parametrize("depth", [1, 3])
def test_a_full_queue_that_drops_warns_once(depth: int) -> None:
    bound(depth, strategy="drop_oldest")
    add(30)
    pressure_monitor.check_all()
    assert crossings() == ["warning"]
    assert len(Event.objects.filter(type="backpressure.dropped")) == 30 - depth


@pytest.mark.statements
def test_enqueues_above_the_threshold_write_no_crossing() -> None:
    bound(1, strategy="drop_oldest")
    add(2)
    with (
        CaptureQueriesContext(connection) as captured,
        transaction.atomic(),
    ):
        add(10)
    statements = [query["sql"].replace('"', "") for query in captured]
    assert not [sql for sql in statements if sql.startswith("UPDATE ojs_queue")]
    reads = [sql for sql in statements if "FROM ojs_queue" in sql]
    # The configuration, before and after the lock; and its snapshot, at most once a second.
    assert len([sql for sql in reads if "name IN" in sql]) == 20


def test_a_dip_that_a_check_has_seen_is_cleared_and_the_rise_warns_again() -> None:
    bound(10, warning_threshold=0.5)
    add(6)
    complete(4)
    pressure_monitor.check_all()
    add(4)
    pressure_monitor.check_all()
    assert crossings() == ["warning", "cleared", "warning"]


def test_dips_between_two_checks_are_published_in_both_directions_or_in_none() -> None:
    bound(10, warning_threshold=0.5)
    for _ in range(5):
        add(6)
        complete(6)
    add(6)
    pressure_monitor.check_all()
    found = crossings()
    assert found == ["warning", "cleared"] * (len(found) // 2) + ["warning"]


def test_a_transaction_that_rolls_back_has_crossed_nothing() -> None:
    bound(10, warning_threshold=0.5)
    with transaction.atomic():
        add(8)
        transaction.set_rollback(True)
    pressure_monitor.check_all()
    assert crossings() == []
    with transaction.atomic():
        add(8)
        assert crossings() == []
    assert crossings() == ["warning"]


def test_checks_at_once_publish_once() -> None:
    retries()
    at_once([pressure_monitor.check_all] * 8)
    assert crossings() == ["warning"]
    complete(4)
    at_once([pressure_monitor.check_all] * 8)
    assert crossings() == ["warning", "cleared"]


def test_producers_at_once_publish_once() -> None:
    bound(1_000, warning_threshold=0.05)
    at_once([lambda: add(15)] * 8)
    pressure_monitor.check_all()
    assert crossings() == ["warning"]


@pytest.fixture
def in_code() -> Iterator[None]:
    policy = {"backpressure": {"max_depth": 4, "warning_threshold": 0.5}}
    in_memory_state.reset()
    with override_settings(OJS={"QUEUES": {"named": policy, "_default": policy}}):
        yield


@pytest.mark.parametrize("queue", ["named", "inherits"])
def test_a_queue_without_a_row_of_its_own_crosses_too(in_code: None, queue: str) -> None:
    add(3, queue=queue)
    assert crossings() == ["warning"]
    complete(3, queue)
    pressure_monitor.check_all()
    assert crossings() == ["warning", "cleared"]
    assert Queue.objects.get(name=queue).warned_at is None


def test_a_bound_that_is_removed_ends_the_warning() -> None:
    bound(4, warning_threshold=0.5)
    add(3)
    bound(None)
    pressure_monitor.restore_bounds()
    assert crossings() == ["warning", "cleared"]
    (event,) = Event.objects.filter(type="backpressure.cleared")
    assert event.data == {"queue": NAME, "depth": 3, "bound": 0}
    bound(4, warning_threshold=0.5)
    pressure_monitor.check_all()
    assert crossings() == ["warning", "cleared", "warning"]


def test_a_new_default_bound_keeps_the_warning_of_a_queue_that_inherits_it() -> None:
    queues.configure_default({"backpressure": {"max_depth": 4, "warning_threshold": 0.5}})
    add(3)
    queues.configure_default({"backpressure": {"max_depth": 5, "warning_threshold": 0.5}})
    add(1)
    pressure_monitor.check_all()
    assert crossings() == ["warning"]


@pytest.mark.smoke
def test_over_http_both_directions_are_published_without_a_worker(remote: Remote) -> None:
    def is_published(*expected: str) -> Callable[[], bool]:
        return lambda: crossings("other") == list(expected)

    with httpx.Client(base_url=f"{remote.url}/ojs/v1", trust_env=False, timeout=BOUND) as client:

        def push(number: int) -> None:
            job = {"type": "a", "args": [], "options": {"queue": "web"}}
            assert client.post("/jobs/batch", json={"jobs": [job] * number}).status_code == 201

        def claim(number: int) -> list[str]:
            body = {"queues": ["web"], "count": number, "worker_id": "w"}
            return [job["id"] for job in client.post("/workers/fetch", json=body).json()["jobs"]]

        backpressure = {"max_depth": 10, "warning_threshold": 0.5}
        client.put("/admin/queues/web/config", json={"backpressure": backpressure})
        push(4)
        running = claim(4)
        push(4)
        assert crossings("other") == []
        for key in running:
            error = {"code": "handler_error", "message": "it broke", "retryable": True}
            assert client.post("/workers/nack", json={"job_id": key, "error": error}).is_success
        eventually(is_published("warning"), "failures have crossed the threshold")
        assert len(claim(4)) == 4
        eventually(is_published("warning", "cleared"), "claims have cleared it")
        push(4)
        eventually(is_published("warning", "cleared", "warning"), "enqueues have crossed it")


@pytest.mark.smoke
def test_a_process_that_only_enqueues_publishes_both_directions(
    process_environment: dict[str, str],
) -> None:
    bound(200, warning_threshold=0.5)
    shell = Shell(
        process_environment,
        """
for _ in range(100):
    enqueue(1, "bounded")
input()
enqueue(1, "bounded")
input()
""",
    )
    eventually(lambda: shell.lives and crossings() == ["warning"], "the threshold is crossed")
    while jobs := fetch([NAME], count=100):
        for job in jobs:
            ack(job.pk)
    shell.writes("\n")
    eventually(lambda: shell.lives and crossings() == ["warning", "cleared"], "it is cleared")
    shell.writes("\n")
    shell.ends()

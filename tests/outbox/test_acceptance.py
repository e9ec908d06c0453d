"""Two sites, each with its own database: one enqueues, the other one works over HTTP."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from django.core.management import call_command
from django.test import override_settings

import django_ojs as ojs
from django_ojs.extensions.outbox import storage as stored
from django_ojs.extensions.outbox.models import OutboxEntry
from django_ojs.extensions.outbox.relay import Relay
from django_ojs.extensions.outbox.relay_threads import Relays, relays
from django_ojs.models import Job, Lease
from django_ojs.operations import queues
from tests.operations.routers import PATH
from tests.outbox.remote import Remote
from tests.outbox.waits import let_time_pass, run
from tests.sizes import FULL
from tests.worker.acceptance.conftest import Start
from tests.worker.acceptance.conftest import start as start
from tests.worker.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

#: Here they die in this process; `tests/faults` kills as many of their own.
KILLS = 200 if FULL else 5


class Killed(BaseException):
    """What ends a relay as a signal would: nothing of ours catches it."""


def destinations(remote: Remote) -> dict[str, Any]:
    return {"remote": {"url": remote.url, "queues": ["remote-*"], "batch_size": 5, "timeout": 20}}


@pytest.fixture
def linked(remote: Remote) -> Iterator[dict[str, Any]]:
    settings = {"OUTBOX": destinations(remote)}
    with override_settings(OJS=settings):
        yield settings


@pytest.fixture
def relay(linked: Any) -> Iterator[Relay]:
    (made,) = relays("tests")
    try:
        yield made
    finally:
        made.close()


def enqueue(number: int, first: int = 0) -> list[Any]:
    wanted = [ojs.request("test.job", [first + i], queue="remote-a") for i in range(number)]
    return [job.id for job in ojs.enqueue_batch(wanted) if job is not None]


def numbers(remote: Remote) -> list[Any]:
    return [job.args[0] for job in remote.jobs]


def bound(depth: int) -> None:
    with override_settings(DATABASE_ROUTERS=[PATH]):
        queues.configure("remote-a", {"backpressure": {"max_depth": depth}})


def work(remote: Remote) -> None:
    """Work what the remote site has, as its own worker would."""
    api = f"{remote.url}/ojs/v1/workers"
    wanted = {"queues": ["remote-a"], "count": 100, "worker_id": "w"}
    with httpx.Client(trust_env=False, verify=False) as client:
        for job in client.post(f"{api}/fetch", json=wanted).json()["jobs"]:
            client.post(f"{api}/ack", json={"job_id": job["id"]}).raise_for_status()


@pytest.mark.smoke
def test_jobs_arrive_in_order_with_their_ids(remote: Remote, relay: Relay) -> None:
    keys = enqueue(23)
    run(relay)
    assert [job.pk for job in remote.jobs] == keys
    assert numbers(remote) == list(range(23))
    assert not Job.objects.exists()
    assert not OutboxEntry.objects.exclude(state="sent").exists()


@pytest.mark.smoke
def test_a_queue_that_drains_and_a_tenant_at_its_bound_hold_back_only_their_own_jobs(
    remote: Remote, relay: Relay
) -> None:
    with override_settings(DATABASE_ROUTERS=[PATH]):
        queues.drain("remote-drains")
        queues.configure("remote-shared", {"tenant_limits": {"max_queue_depth": 2}})

    def send(queue: str, arg: str, **meta: Any) -> None:
        ojs.enqueue("test.job", [arg], queue=queue, meta=meta)

    for number in range(3):
        send("remote-drains", f"drains {number}")
        send("remote-shared", f"full {number}", tenant_id="full")
        send("remote-shared", f"small {number % 2}", tenant_id=f"small-{number}")
        send("remote-a", f"a {number}")
    run(relay)
    assert sorted(numbers(remote)) == [
        *("a 0", "a 1", "a 2", "full 0", "full 1", "small 0", "small 0", "small 1")
    ]
    waiting = OutboxEntry.objects.filter(state="pending").order_by("position")
    codes = ["queue_paused", "QUEUE_FULL", "", ""]
    assert sorted(waiting.values_list("error_code", flat=True)) == sorted(codes)
    # Another job for a queue that is held back waits as well, with no request.
    send("remote-drains", "drains 3")
    run(relay)
    assert waiting.count() == 5
    with override_settings(DATABASE_ROUTERS=[PATH]):
        queues.resume("remote-drains")
        queues.configure("remote-shared", {"tenant_limits": {"max_queue_depth": 3}})

    def arrived() -> bool:
        let_time_pass(relay)
        run(relay)
        return not waiting.exists()

    # The remote site may know it a second later.
    eventually(arrived, "all have arrived", pause=0.1)
    assert [each for each in numbers(remote) if "drains" in each] == [
        f"drains {number}" for number in range(4)
    ]
    assert [each for each in numbers(remote) if "full" in each] == ["full 0", "full 1", "full 2"]


@pytest.mark.smoke
@pytest.mark.sized
@pytest.mark.requirement("FA-003")
def test_each_job_arrives_once_through_deaths_between_sending_and_noting(
    remote: Remote, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, deaths = stored.sent, 0

    def killed(*args: Any) -> int:
        raise Killed

    for death in range(KILLS):
        enqueue(3, first=3 * death)
        monkeypatch.setattr(stored, "sent", killed)
        with pytest.raises(Killed):
            run(relay)
        deaths += 1
        monkeypatch.setattr(stored, "sent", real)
        run(relay)
    assert deaths == KILLS
    assert numbers(remote) == list(range(3 * KILLS))
    assert not OutboxEntry.objects.exclude(state="sent").exists()


def test_a_full_remote_queue_loses_nothing_and_producers_notice_nothing(
    remote: Remote, relay: Relay
) -> None:
    bound(5)
    running = Relays([relay])

    def arrived() -> bool:
        work(remote)
        let_time_pass(relay)
        return not OutboxEntry.objects.exclude(state="sent").exists()

    try:
        enqueue(20)
        full = OutboxEntry.objects.filter(error_code="QUEUE_FULL")
        eventually(full.exists, "it is full")
        # Neither an error nor a wait: the outbox is a table of the producer's own.
        enqueue(20, first=20)
        assert remote.jobs.count() <= 5
        eventually(arrived, "all have arrived", pause=0.1)
    finally:
        running.close()
    assert numbers(remote) == list(range(40))


def test_jobs_wait_while_the_remote_site_is_away(remote: Remote, relay: Relay) -> None:
    enqueue(2)
    run(relay)
    remote.stop()
    enqueue(3, first=2)
    run(relay)
    assert OutboxEntry.objects.filter(state="pending").count() == 3
    remote.start()
    let_time_pass(relay)
    run(relay)
    assert numbers(remote) == list(range(5))


@pytest.mark.smoke
def test_a_unique_job_that_is_sent_twice_neither_replaces_nor_rejects_itself(
    remote: Remote, relay: Relay
) -> None:
    for conflict in ("reject", "replace", "ignore"):
        policy = ojs.UniquePolicy(on_conflict=conflict)
        ojs.enqueue(f"test.{conflict}", [conflict], queue="remote-a", unique=policy)
    run(relay)
    OutboxEntry.objects.update(state="pending")
    run(relay)
    assert numbers(remote) == ["reject", "replace", "ignore"]
    assert {job.state for job in remote.jobs} == {"available"}
    assert not OutboxEntry.objects.exclude(state="sent").exists()


@pytest.mark.requirement("FA-R003")
def test_a_worker_starts_the_relay_and_leaves_its_lease_when_it_stops(
    remote: Remote, start: Start, linked: dict[str, Any]
) -> None:
    tree = start(ojs=linked).ready()
    enqueue(3)
    eventually(lambda: numbers(remote) == [0, 1, 2], f"the jobs arrive; it said:\n{tree.log}")
    tree.signal(signal.SIGTERM)
    tree.ends()
    assert not Lease.objects.filter(name__startswith="outbox").exists(), tree.log


def test_the_relay_of_a_killed_worker_is_taken_over(
    remote: Remote, start: Start, linked: dict[str, Any]
) -> None:
    first = start(ojs=linked).ready()
    enqueue(1)
    eventually(lambda: numbers(remote) == [0], "the first relay sends")
    second = start(ojs=linked).ready()
    first.kill()
    enqueue(1, first=1)
    eventually(lambda: numbers(remote) == [0, 1], f"the second one does; it said:\n{second.log}")


def test_manage_py_ojs_relay_once_sends_what_can_be_sent(
    remote: Remote, linked: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    enqueue(7)
    call_command("ojs_relay", once=True)
    assert "remote: 7 sent, 0 rejected" in capsys.readouterr().out
    assert numbers(remote) == list(range(7))


@pytest.mark.usefixtures("new_interpreters")
def test_manage_py_ojs_relay_works_until_a_signal_stops_it(
    remote: Remote, start: Start, linked: Any
) -> None:
    tree = start(ojs=linked, program=("manage.py", "ojs_relay"))
    enqueue(4)
    eventually(lambda: numbers(remote) == [0, 1, 2, 3], f"the jobs arrive; it said:\n{tree.log}")
    tree.signal(signal.SIGTERM)
    assert tree.ends() == 0
    assert not Lease.objects.filter(name__startswith="outbox").exists()

"""The responses of a server, missing responses, and its manifest."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings

import django_ojs as ojs
from django_ojs.conf import of
from django_ojs.extensions.outbox import operations
from django_ojs.extensions.outbox.breaker import COOLDOWN, BreakerState
from django_ojs.extensions.outbox.models import OutboxEntry
from django_ojs.extensions.outbox.relay import Relay
from django_ojs.extensions.outbox.relay_threads import relays
from django_ojs.extensions.outbox.responses import Unreachable
from django_ojs.extensions.outbox.sender import Sender
from django_ojs.extensions.outbox.settings import OutboxSettings
from django_ojs.spec import ids
from tests.outbox.conftest import destination
from tests.outbox.server import Server, error
from tests.outbox.waits import enqueue, let_time_pass, run, states
from tests.worker.waiting import BOUND

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.once,
]


def only() -> OutboxEntry:
    return OutboxEntry.objects.get()


@pytest.mark.requirement("FA-003")
def test_a_job_that_had_arrived_already_counts_as_delivered(server: Server, relay: Relay) -> None:
    keys = enqueue(5)
    run(relay)
    # As after a relay that died between sending and noting it.
    OutboxEntry.objects.filter(job_id__in=keys[:3]).update(state="pending")
    keys += enqueue(2, first=5)
    run(relay)
    assert server.ids == keys
    assert set(states()) == {"sent"}


def test_a_job_that_its_unique_policy_rejects_is_kept_as_rejected(
    server: Server, relay: Relay
) -> None:
    other = {"existing_job_id": str(ids.uuid7())}
    server.response = lambda path, body: body and error(409, "duplicate", details=other)
    enqueue(1)
    run(relay)
    assert (only().state, only().error_code) == ("rejected", "duplicate")


def test_a_job_for_a_queue_that_drains_is_sent_again_later(server: Server, relay: Relay) -> None:
    def response(path: str, body: Any) -> Any:
        if body is None:
            return None
        status, document, headers = error(422, "queue_paused")
        document["error"]["retryable"] = True
        return status, document, headers

    server.response = response
    keys = enqueue(1)
    run(relay)
    assert (only().state, only().error_code) == ("pending", "queue_paused")
    server.response = lambda path, body: None
    let_time_pass(relay)
    run(relay)
    assert (server.ids, only().state) == (keys, "sent")


def test_one_bad_job_of_a_batch_is_rejected_and_the_others_arrive(
    server: Server, relay: Relay
) -> None:
    def response(path: str, body: Any) -> Any:
        jobs = body["jobs"] if body and "jobs" in body else [body]
        bad = [i for i, job in enumerate(jobs) if job and job["args"] == [3]]
        return error(400, "invalid_request", details={"index": bad[0]}) if bad else None

    server.response = response
    enqueue(6)
    run(relay)
    assert server.args == [0, 1, 2, 4, 5]
    (entry,) = OutboxEntry.objects.filter(state="rejected")
    assert (entry.error_code, entry.error_message) == ("invalid_request", "a rule of the server")
    assert (relay.sent_count, relay.rejected_count) == (5, 1)
    server.response = lambda path, body: None
    assert operations.requeue([entry.pk]) == 1
    assert operations.requeue([entry.pk]) == 0
    enqueue(1, first=6)
    run(relay)
    # Placed together, in the order of their rows.
    assert sorted(server.args) == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.requirement("FA-003")
@pytest.mark.parametrize(
    "reply",
    [
        (200, b"<html>Welcome to the hotel</html>", {}),
        (201, {"job": {"id": "another"}}, {}),
        (400, b"<html>proxy</html>", {}),
        (302, b"", {"Location": "/login"}),
        (401, {"error": {"code": "UNAUTHENTICATED", "message": "no"}}, {}),
        (404, {"error": {"code": "not_found", "message": "no"}}, {}),
        (408, b"", {}),
        (500, {"error": {"code": "backend_error", "message": "no", "retryable": True}}, {}),
        (429, {"error": {"code": ["QUEUE_FULL"], "queue": "far", "message": {}}}, {}),
        (500, {"error": {"code": {}, "details": [], "retryable": "no"}}, {}),
        (502, b"\xff\xfe", {}),
        (503, b"[" * 10_000, {"Retry-After": "soon"}),
    ],
    ids=lambda reply: str(reply[0]),
)
@pytest.mark.parametrize("number", [1, 3])
def test_what_says_nothing_about_the_job_leaves_it_waiting(
    server: Server, relay: Relay, reply: Any, number: int
) -> None:
    server.response = lambda path, body: reply if body else None
    enqueue(number)
    run(relay)
    assert set(states()) == {"pending"}
    first = OutboxEntry.objects.order_by("id")[0]
    assert first.error_code
    assert first.next_try_at is not None
    server.response = lambda path, body: None
    let_time_pass(relay)
    run(relay)
    assert server.args == list(range(number))


@pytest.mark.parametrize("status", [400, 403, 413, 422])
def test_what_is_rejected_for_good_is_kept_with_the_reason(
    server: Server, relay: Relay, status: int
) -> None:
    server.response = lambda path, body: body and error(status, "SOME_CODE", message="x" * 5000)
    enqueue(1)
    run(relay)
    entry = only()
    assert (entry.state, entry.error_code, entry.attempts) == ("rejected", "SOME_CODE", 1)
    assert len(entry.error_message) == 1000


def test_a_server_without_batches_gets_one_job_at_a_time(server: Server, relay: Relay) -> None:
    server.manifest = {"capabilities": {"batch_enqueue": False}}
    keys = enqueue(3)
    run(relay)
    assert (server.ids, server.posts("/batch")) == (keys, [])


def test_a_manifest_that_is_garbage_or_missing_stops_nothing(server: Server, relay: Relay) -> None:
    server.response = lambda path, body: None if body else (404, b"<html>", {})
    keys = enqueue(3)
    run(relay)
    assert server.ids == keys


@pytest.mark.requirement("PL-011")
def test_the_manifest_is_read_once_and_sizes_are_checked_before_sending(
    server: Server, relay: Relay
) -> None:
    server.manifest = {
        "extensions": {"payload_limits": {"max_envelope_bytes": 2000, "max_meta_bytes": 50}},
        "limits": {"max_body_bytes": 3000},
    }
    enqueue(1, first=0)
    ojs.enqueue("test.job", ["x" * 3000], queue="remote-a")
    ojs.enqueue("test.job", [1], queue="remote-a", meta={"a": "é" * 40})
    for index in range(2, 7):
        ojs.enqueue("test.job", [index, "x" * 1000], queue="remote-a")
    run(relay)
    assert server.args == [0, 2, 3, 4, 5, 6]
    rejected = OutboxEntry.objects.filter(state="rejected").order_by("id")
    assert [entry.error_code for entry in rejected] == ["PAYLOAD_TOO_LARGE", "METADATA_TOO_LARGE"]
    assert max(len(str(body)) for body in server.posts("/batch")) < 3000
    assert sum(path.endswith("/manifest") for _, path, _, _ in server.requests) == 1


def test_bodies_are_packed_for_a_server_that_can_unpack_them(server: Server, relay: Relay) -> None:
    server.manifest = {"extensions": {"payload_limits": {"supported_compression": ["zstd"]}}}
    ojs.enqueue("test.job", ["x" * 5000], queue="remote-a")
    run(relay)
    ((_, _, headers, body),) = [each for each in server.requests if each[0] == "POST"]
    assert headers["Content-Encoding"] == "zstd"
    assert int(headers["Content-Length"]) < 1000
    assert body["args"] == ["x" * 5000]


def test_a_server_that_cannot_unpack_after_all_gets_it_plain(server: Server, relay: Relay) -> None:
    server.manifest = {"extensions": {"payload_limits": {"supported_compression": ["zstd"]}}}
    packed: list[bool] = []

    def response(path: str, body: Any) -> Any:
        if body is None:
            return None
        packed.append("Content-Encoding" in server.requests[-1][2])
        return error(415, "UNSUPPORTED_COMPRESSION") if packed[-1] else None

    server.response = response
    for _ in range(2):
        ojs.enqueue("test.job", ["x" * 5000], queue="remote-a")
        run(relay)
    assert (packed, len(server.jobs)) == ([True, False, False], 2)


def test_a_full_queue_is_left_alone_for_as_long_as_it_says_then_probed_with_one_job(
    server: Server, relay: Relay
) -> None:
    server.bound = 0
    server.response = lambda path, body: (
        body and error(429, "QUEUE_FULL", headers={"Retry-After": "40"})
        if not server.bound
        else None
    )
    keys = enqueue(10)
    run(relay)
    assert relay.breaker.wait > 35
    asked = len(server.requests)
    run(relay)
    assert len(server.requests) == asked
    entry = OutboxEntry.objects.order_by("id")[0]
    assert entry.next_try_at is not None
    assert entry.next_try_at - entry.created_at > timedelta(seconds=35)
    server.bound = 100
    let_time_pass(relay)
    run(relay)
    assert server.ids == keys
    sizes = [len(body["jobs"]) if "jobs" in body else 1 for body in server.posts()][1:]
    assert sizes == [1, 2, 4, 3]


def test_a_batch_for_which_there_is_no_room_goes_as_far_as_there_is(
    server: Server, relay: Relay
) -> None:
    """Not once a minute: a batch over the bound of its queue would never find room at all."""
    waiting = 0

    def response(path: str, body: Any) -> Any:
        nonlocal waiting
        jobs = body["jobs"] if body and "jobs" in body else [body]
        if body is None or waiting + len(jobs) <= 5:
            waiting += 0 if body is None else len(jobs)
            return None
        full = {"queue": "remote-a", "depth": waiting, "bound": 5}
        return error(429, "QUEUE_FULL", details=full, headers={"Retry-After": "60"})

    server.response = response
    keys = enqueue(12)
    # One request's worth, and no wait: it says that it has room for five.
    assert relay.send_next() == 0
    assert (server.ids, relay.breaker.failures) == (keys[:5], 0)
    waiting = 2
    assert relay.send_next() == 0
    assert server.ids == keys[:8]
    # Now it is full, and is left alone.
    relay.send_next()
    asked = len(server.requests)
    run(relay)
    assert len(server.requests) == asked
    (first,) = OutboxEntry.objects.exclude(holds_back="")
    assert (str(first.job_id), first.holds_back) == (keys[8], "queue")
    assert first.next_try_at is not None
    assert first.next_try_at - first.created_at > timedelta(seconds=59)
    # The server works: jobs for another queue of it are sent.
    assert relay.breaker.wait == 0
    assert (server.ids, states()[8:]) == (keys[:8], ["pending"] * 4)


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_that_is_too_busy_for_its_manifest_is_left_alone_for_as_long_as_it_says(
    server: Server, relay: Relay, status: int
) -> None:
    server.response = lambda path, body: (status, b"", {"Retry-After": "40"})
    enqueue(2)
    run(relay)
    assert relay.breaker.wait > 20
    assert states() == ["pending", "pending"]
    assert server.posts() == []


def test_the_breaker_opens_after_five_failures_and_lets_one_job_through(
    server: Server, relay: Relay
) -> None:
    server.response = lambda path, body: body and error(503, "backend_error")
    keys = enqueue(3)
    for failures in range(1, 6):
        assert relay.breaker.state is BreakerState.CLOSED
        run(relay)
        assert relay.breaker.failures == failures
        if failures < 5:
            let_time_pass(relay)
    assert relay.breaker.state is BreakerState.OPEN
    assert 0 < relay.breaker.wait <= COOLDOWN
    let_time_pass(relay)
    assert relay.breaker.state is BreakerState.HALF_OPEN
    run(relay)
    assert relay.breaker.state is BreakerState.OPEN
    server.response = lambda path, body: None
    let_time_pass(relay)
    run(relay)
    assert relay.breaker.state is BreakerState.CLOSED
    assert server.ids == keys


def test_a_server_that_is_away_keeps_the_jobs_waiting() -> None:
    away = {"remote": {"url": "http://127.0.0.1:9", "queues": ["remote-*"], "timeout": 2}}
    with override_settings(OJS={"OUTBOX": away}):
        (relay,) = relays("tests")
        try:
            enqueue(2)
            run(relay)
        finally:
            relay.close()
    assert states() == ["pending", "pending"]
    assert only_code() == {"unreachable"}


@pytest.mark.parametrize("head", [b"HTTP/1.1 201 Created\r\nX: ", b"HTTP/1.1 201 Created\r\n\r\n"])
def test_a_server_that_sends_a_byte_at_a_time_is_given_up(
    server: Server, head: bytes, no_proxy: None
) -> None:
    """Within the timeout of a request: each byte comes within that of a read."""
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as slow:

        def drip() -> None:
            with suppress(OSError):
                while not stop.is_set():
                    connection, _ = slow.accept()
                    with connection, suppress(OSError):
                        connection.sendall(head)
                        while not stop.wait(0.1):
                            connection.sendall(b"x")

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{slow.getsockname()[1]}"
        try:
            with override_settings(OJS={"OUTBOX": destination(server, url=url, timeout=1)}):
                sender = Sender(of(OutboxSettings).outbox[0])
                asked = ThreadPoolExecutor(1).submit(sender.manifest)
                with pytest.raises(Unreachable):
                    asked.result(BOUND)
                sender.close()
        finally:
            stop.set()
            with suppress(OSError):
                socket.create_connection(slow.getsockname(), 1).close()
            thread.join(BOUND)


def only_code() -> set[str]:
    return set(OutboxEntry.objects.values_list("error_code", flat=True))


def test_a_server_that_never_ends_its_response_is_given_up_and_the_job_arrives_once(
    server: Server,
) -> None:
    with override_settings(OJS={"OUTBOX": destination(server, timeout=2)}):
        (relay,) = relays("tests")
        hold = threading.Event()

        def response(path: str, body: Any) -> Any:
            if body is None or hold.is_set():
                return None
            server.jobs.append(body)
            hold.wait(BOUND)  # It took the job, and never says so.
            return 500, b"", {}

        server.response = response
        try:
            keys = enqueue(1)
            run(relay)
            assert states() == ["pending"]
            hold.set()
            let_time_pass(relay)
            run(relay)
        finally:
            hold.set()
            relay.close()
    assert (states(), server.ids) == (["sent"], keys)

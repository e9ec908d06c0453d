"""A worker and references: what its handlers get, and how their jobs fail."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection
from django.test import override_settings

import django_ojs as ojs
from django_ojs import handlers
from django_ojs.extensions.payloads import resolver
from django_ojs.extensions.payloads.reference import KEY
from django_ojs.models import Job
from django_ojs.operations import queues
from django_ojs.worker.executor import Executor
from tests import factories
from tests.payloads.conftest import Bucket
from tests.payloads.resolving import checksum
from tests.payloads.servers import HttpsServer, response
from tests.testapp.models import Thing
from tests.worker.parts import Outcomes, claimed, run_of, threads
from tests.worker.waiting import eventually

BODY = json.dumps({"rows": [1, 2, 3]}).encode()


@pytest.fixture
def declared() -> Iterator[Callable[..., Any]]:
    """Declare handlers for one test."""
    before = set(handlers.job_types())
    yield ojs.job
    for type in set(handlers.job_types()) - before:
        handlers.registry.remove(type)


def work(queue: str) -> None:
    """Run what is in a queue, as `ojs_worker --once` does."""
    from django.core.management import call_command

    before = set(threads())
    call_command("ojs_worker", "--queues", queue, "--once")
    eventually(lambda: not set(threads()) - before, "the worker's threads have ended")


def enqueue(type: str, *args: Any, **options: Any) -> Job:
    return ojs.enqueue(type, args, queue="payloads", **options).model()


@pytest.mark.once
@pytest.mark.requirement("PL-012")
@pytest.mark.django_db(transaction=True)
class TestJobs:
    @pytest.mark.both
    def test_a_handler_gets_the_value_and_the_job_keeps_its_reference(
        self, host: HttpsServer, declared: Any
    ) -> None:
        seen: list[Any] = []

        @declared("payloads.sum")
        def add(ctx: ojs.JobContext, rows: dict[str, Any], more: int) -> int:
            seen.append(ctx.job.args)
            return sum(rows["rows"]) + more

        host.paths["/x"] = response(BODY)
        reference = {KEY: host.uri("/x"), "checksum": checksum(BODY)}
        job = enqueue("payloads.sum", reference, 4)
        work("payloads")
        done = factories.read(job.pk)
        assert (done.state, done.result) == ("completed", 10)
        assert done.args == [reference, 4] == seen[0]

    def test_an_async_handler_gets_the_value(self, host: HttpsServer, declared: Any) -> None:
        @declared("payloads.async")
        async def count(rows: dict[str, Any], raw: ojs.PayloadStream) -> list[int]:
            return [len(rows["rows"]), len(await sync_to_async(raw.read)())]

        host.paths["/x"] = response(BODY)
        reference = {KEY: host.uri("/x"), "checksum": checksum(BODY)}
        job = enqueue("payloads.async", reference, reference)
        work("payloads")
        assert factories.read(job.pk).result == [3, len(BODY)]

    def test_offloaded_arguments_come_back(self, offloading: Bucket, declared: Any) -> None:
        @declared("payloads.long")
        def length(text: str) -> int:
            return len(text)

        job = enqueue("payloads.long", "x" * 100_000)
        assert KEY in job.args[0]
        work("payloads")
        assert factories.read(job.pk).result == 100_000

    @pytest.mark.requirement("PL-013")
    @pytest.mark.parametrize("atomic", [False, True])
    @pytest.mark.parametrize(
        "kind", [dict, ojs.PayloadFile, ojs.PayloadStream, ojs.UnverifiedPayloadStream]
    )
    def test_a_wrong_checksum_fails_the_job_for_good(
        self, host: HttpsServer, declared: Any, kind: Any, atomic: bool
    ) -> None:
        def handler(payload: Any) -> None:
            Thing.objects.create(name="made")

        handler.__annotations__["payload"] = kind
        declared("payloads.wrong", atomic=atomic)(handler)
        host.paths["/x"] = response(BODY)
        job = enqueue("payloads.wrong", {KEY: host.uri("/x"), "checksum": checksum(b"")})
        work("payloads")
        failed = factories.read(job.pk)
        assert (failed.state, failed.attempt) == ("discarded", 1)
        assert failed.error["type"] == "PayloadChecksumMismatch"
        assert host.uri("/x") not in json.dumps(failed.error)
        # The handler is called for such a stream only, and if it is atomic, leaves nothing.
        left = kind is ojs.UnverifiedPayloadStream and not atomic
        assert Thing.objects.filter(name="made").count() == left

    def test_what_is_not_allowed_fails_the_job_for_good(
        self, declared: Any, connections_made: list[Any]
    ) -> None:
        @declared("payloads.rejected")
        def never(payload: Any) -> None:
            raise AssertionError

        job = enqueue("payloads.rejected", {KEY: "https://169.254.169.254/latest/meta-data"})
        made = len(connections_made)
        work("payloads")
        failed = factories.read(job.pk)
        assert (failed.state, failed.attempt) == ("discarded", 1)
        assert failed.error["type"] == "PayloadRejected"
        assert failed.error["retryable"] is False
        assert "PAYLOAD_HTTPS_HOSTS" in failed.error["message"]
        assert "169.254" not in json.dumps(failed.error)
        assert not [a for a in connections_made[made:] if "169.254" in str(a)]

    def test_what_cannot_be_had_now_is_tried_again(self, host: HttpsServer, declared: Any) -> None:
        @declared("payloads.later")
        def later(payload: Any) -> None:
            raise AssertionError

        host.paths["/x"] = response(b"", status="503 Busy")
        job = enqueue("payloads.later", {KEY: host.uri("/x")}, retry=factories.hourly())
        work("payloads")
        failed = factories.read(job.pk)
        assert (failed.state, failed.error["type"]) == ("retryable", "PayloadUnavailable")

    @pytest.mark.both
    def test_it_is_resolved_outside_of_the_transaction_of_an_atomic_handler(
        self, host: HttpsServer, declared: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        inside: list[bool] = []
        real = resolver.Resolved._resolve

        def watched(*args: Any) -> Any:
            inside.append(connection.in_atomic_block)
            return real(*args)

        monkeypatch.setattr(resolver.Resolved, "_resolve", watched)

        @declared("payloads.atomic", atomic=True)
        def handler(payload: Any) -> bool:
            return connection.in_atomic_block

        host.paths["/x"] = response(BODY)
        job = enqueue("payloads.atomic", {KEY: host.uri("/x")})
        work("payloads")
        assert factories.read(job.pk).result is True
        assert inside == [False]

    @pytest.mark.interrupts
    def test_the_jobs_timeout_holds_while_a_host_drips(
        self, host: HttpsServer, declared: Any
    ) -> None:
        @declared("payloads.slow", timeout=0.3)
        def never(payload: Any) -> None:
            raise AssertionError

        def drip(link: ssl.SSLSocket, stop: threading.Event) -> None:
            link.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            while not stop.wait(0.02):
                link.sendall(b"1")

        host.paths["/x"] = drip
        job = enqueue("payloads.slow", {KEY: host.uri("/x")}, retry=factories.hourly())
        work("payloads")
        failed = factories.read(job.pk)
        assert (failed.state, failed.error["type"]) == ("retryable", "timeout")


@pytest.mark.requirement("PL-007")
@pytest.mark.django_db
def test_the_server_never_looks_at_what_a_reference_says(connections_made: list[Any]) -> None:
    from tests.http.api import Api

    given = [
        {KEY: "https://169.254.169.254/", "size": 10**15, "checksum": "sha256:wrong"},
        {KEY: "no uri at all"},
        {KEY: None, "size": "x"},
    ]
    queues.configure("refs", {"max_envelope_bytes": 1_000})
    made = len(connections_made)
    with override_settings(DEBUG=True):
        job = Api().push(args=given, queue="refs")
    assert job["args"] == given
    (fetched,) = Api().fetch("refs")
    assert fetched["args"] == given
    assert not [a for a in connections_made[made:] if "169.254" in str(a)]


def test_a_run_without_references_goes_straight_to_its_handler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resolver, "run", None)
    outcomes = Outcomes()
    executor = Executor(1, outcomes)
    executor.submit([run_of(lambda value: value, job=claimed({"a": 1}))])
    assert outcomes.next().result == {"a": 1}
    executor.close()

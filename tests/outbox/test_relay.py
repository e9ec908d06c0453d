"""What the relay sends, in what order, and that one does it at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from copy import deepcopy
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from django.db import OperationalError, connections, transaction
from django.db.models import F, Model
from django.db.models.functions import Now
from django.test import override_settings

import django_ojs as ojs
from django_ojs.extensions.events import commit_order
from django_ojs.extensions.outbox import local, operations, relay_threads
from django_ojs.extensions.outbox import storage as stored
from django_ojs.extensions.outbox.models import OutboxEntry
from django_ojs.extensions.outbox.relay import Relay, lease_name
from django_ojs.extensions.outbox.relay_threads import Relays, relays
from django_ojs.models import Lease
from django_ojs.operations.maintenance import lease
from tests.factories import EnvelopeFactory, age_lease, put
from tests.other_session import open_transaction
from tests.outbox.conftest import destination
from tests.outbox.server import Server
from tests.outbox.waits import enqueue, run, states
from tests.worker.waiting import BOUND, eventually

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


@pytest.mark.requirement("FA-R002")
def test_jobs_are_sent_in_batches_in_the_order_of_their_enqueues(
    server: Server, relay: Relay
) -> None:
    keys = enqueue(250)
    run(relay)
    assert server.ids == keys
    assert [len(body["jobs"]) for body in server.posts("/batch")] == [100, 100, 50]
    assert set(states()) == {"sent"}
    assert relay.sent_count == 250


@pytest.mark.postgresql
def test_a_job_whose_transaction_commits_late_is_sent_late_and_not_passed_over(
    server: Server, relay: Relay
) -> None:
    with open_transaction(lambda: enqueue(1, first=1)) as commit:
        enqueue(1, first=2)
        run(relay)
        assert server.args == [2]
        commit()
    run(relay)
    assert server.args == [2, 1]


@pytest.mark.usefixtures("outbox")
def test_a_job_that_is_sent_again_goes_after_all_that_wait() -> None:
    enqueue(2)
    commit_order.assign(OutboxEntry, "default")
    first, second = OutboxEntry.objects.order_by("pk")
    stored.rejected(first.pk, "default", code="x", message="x")
    operations.requeue([first.pk])
    commit_order.assign(OutboxEntry, "default")
    pages = [stored.next_of(first.destination, "default", limit) for limit in (1, 2)]
    assert [[entry.pk for entry in page] for page in pages] == [
        [second.pk],
        [second.pk, first.pk],
    ]


def test_one_job_goes_by_itself_with_the_key_and_in_the_dialect(server: Server) -> None:
    wanted = destination(server, api_key="ojs_abc")
    with override_settings(OJS={"OUTBOX": wanted}):
        (relay,) = relays("tests")
        try:
            enqueue(1)
            run(relay)
        finally:
            relay.close()
    ((_, path, headers, body),) = [each for each in server.requests if each[0] == "POST"]
    assert path == "/ojs/v1/jobs"
    assert headers["Authorization"] == "Bearer ojs_abc"
    assert headers["Content-Type"] == "application/openjobspec+json"
    assert body["options"]["queue"] == "remote-a"


def test_another_relay_waits_while_one_has_the_lease_and_takes_over_when_it_is_dead(
    server: Server, relay: Relay
) -> None:
    (second,) = relays("second")
    try:
        enqueue(1)
        run(relay)
        enqueue(1, first=1)
        assert second.send_next() > 0
        assert server.args == [0]
        age_lease(lease_name("remote", "default"))
        run(second)
        assert server.args == [0, 1]
    finally:
        second.close()


def test_the_lease_is_kept_while_a_server_is_slow(server: Server, relay: Relay) -> None:
    go_on = threading.Event()

    def response(path: str, body: Any) -> Any:
        if body is not None:
            go_on.wait(BOUND)

    server.response = response
    enqueue(1)
    running = Relays([relay])
    try:
        eventually(lambda: server.posts(), "the job is on its way")
        name = lease_name("remote", "default")
        before = Lease.objects.get(name=name).until
        eventually(lambda: Lease.objects.get(name=name).until > before + lease.TERM, "it is kept")
        assert not lease.take("another", name)
        go_on.set()
        eventually(lambda: states() == ["sent"], "the job arrived")
    finally:
        go_on.set()
        running.close()
    assert not Lease.objects.filter(name=name).exists()


def test_who_stops_does_not_wait_for_a_slow_server_and_the_job_is_sent_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timeout of its request is far away: the process that ends hangs up."""
    monkeypatch.setattr(relay_threads, "REQUEST_TIMEOUT", 0.1)
    monkeypatch.setattr(relay_threads, "STORE_TIMEOUT", 30.0)
    go_on = threading.Event()

    def response(path: str, body: Any) -> Any:
        return (go_on.wait(BOUND) and None) if body else None

    server.response = response
    with override_settings(OJS={"OUTBOX": destination(server, timeout=300)}):
        running = Relays(relays("tests"))
        try:
            enqueue(1)
            eventually(server.posts, "the job is on its way")
            running.close()
            assert (states(), OutboxEntry.objects.get().error_code) == (["pending"], "unreachable")
            assert not Lease.objects.filter(name=lease_name("remote", "default")).exists()
        finally:
            go_on.set()


def test_a_job_is_not_put_off_for_longer_by_a_clock_that_is_set_back(
    server: Server, relay: Relay
) -> None:
    keys = enqueue(2)
    for ahead, sent in ((timedelta(minutes=50), []), (timedelta(days=9), keys)):
        OutboxEntry.objects.update(next_try_at=Now() + ahead)
        run(relay)
        assert server.ids == sent


def test_what_was_sent_or_rejected_is_pruned_in_its_time(server: Server, relay: Relay) -> None:
    enqueue(3)
    run(relay)
    first = OutboxEntry.objects.order_by("id")[0]
    OutboxEntry.objects.filter(pk=first.pk).update(state="pending")
    stored.rejected(first.pk, "default", code="invalid_request", message="no")
    assert operations.prune() == 0
    OutboxEntry.objects.update(
        sent_at=F("sent_at") - timedelta(minutes=1),
        created_at=F("created_at") - timedelta(minutes=1),
    )
    with override_settings(
        OJS={"OUTBOX": destination(server), "KEEP_SENT": 0.000001, "KEEP_DEAD_LETTERS": 3600}
    ):
        assert operations.prune() == 2
    assert states() == ["rejected"]
    # A job that waited for years, and was rejected a minute ago.
    OutboxEntry.objects.update(created_at=F("created_at") - timedelta(days=1000))
    with override_settings(OJS={"KEEP_DEAD_LETTERS": 3600}):
        assert operations.prune() == 0
    with override_settings(OJS={"KEEP_DEAD_LETTERS": 0.000001}):
        assert operations.prune() == 1


def test_jobs_of_another_aliass_outbox_are_sent_too(server: Server) -> None:
    ojs_ = {"OUTBOX": destination(server), "WRONG_DATABASE": "outbox"}
    with override_settings(OJS=ojs_):
        with transaction.atomic(using="other"):
            enqueue(3)
        found = relays("tests")
        assert [relay.using for relay in found] == ["default", "other"]
        for relay in found:
            run(relay)
            relay.close()
    assert server.args == [0, 1, 2]


def test_large_jobs_are_not_all_in_memory_at_once(
    server: Server, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "LOADED_AT_ONCE", 5000)
    for index in range(5):
        ojs.enqueue("test.job", [index, "x" * 2000], queue="remote-a")
    run(relay)
    assert server.args == list(range(5))
    assert [len(body["jobs"]) for body in server.posts("/batch")] == [2, 2]


def test_a_database_that_is_away_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    real = commit_order.assign

    def assign(model: type[Model], using: str) -> int:
        if using == "other":
            raise OperationalError
        return real(model, using)

    monkeypatch.setattr(commit_order, "assign", assign)
    with override_settings(OJS={"WRONG_DATABASE": "outbox"}):
        put(EnvelopeFactory())
        assert local.deliver() == 1


@pytest.fixture
def replica() -> Iterator[str]:
    """Return an alias of the same rows that takes no writes."""
    values = deepcopy(connections.settings["default"])
    values["OPTIONS"] = {**values["OPTIONS"], "options": "-c default_transaction_read_only=on"}
    values["NAME"] = connections["default"].settings_dict["NAME"]
    connections.settings["replica"] = values
    link: Any = connections["replica"]
    # Django's test cases reject the queries of an alias that they do not know.
    link.ensure_connection = lambda: link.connection or link.connect()
    yield "replica"
    connections["replica"].close()
    del connections["replica"]
    del connections.settings["replica"]


@pytest.mark.postgresql
@pytest.mark.parametrize("known", ["as a mirror", "by the server alone"])
def test_a_replica_has_no_outbox_of_its_own(replica: str, known: str) -> None:
    if known == "as a mirror":
        connections.settings[replica]["TEST"]["MIRROR"] = "default"
        # It is not even asked.
        connections[replica].ensure_connection = mock.Mock(side_effect=AssertionError)  # type: ignore[method-assign]
    with override_settings(OJS={"WRONG_DATABASE": "outbox"}):
        assert operations.aliases() == ["default", "other"]

"""Signals and notifications are sent after the commit, and never for what was rolled back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import Any

import pytest
from django.db import connection, transaction
from django.dispatch import Signal
from django.test.utils import CaptureQueriesContext

from django_ojs import signals
from django_ojs.models import Job
from django_ojs.operations import (
    ack,
    activate,
    cancel,
    expiry,
    fail,
    fetch,
    promotion,
    queues,
    retry,
)
from django_ojs.operations import push as pushing
from django_ojs.operations.workers import rescue
from django_ojs.storage import database, notify
from tests.factories import BOOM, HOUR, EnvelopeFactory, active, age, hourly, in_state, push, read
from tests.receivers import receiving
from tests.worker.waiting import BOUND

pytestmark = pytest.mark.django_db(transaction=True)


class Rollback(Exception):
    """What an application raises."""


def lapse(attempts: int) -> Any:
    job = active(retry=hourly(attempts))
    age(job.id, HOUR)
    return rescue.lapse


def expire() -> Any:
    job = push(expires_at=HOUR)
    age(job.pk, 2 * HOUR)
    return expiry.expire


#: Each makes a job ready and returns the operation; beside it, the signals of that, in order.
CASES: dict[str, tuple[Callable[[], Callable[[], Any]], list[str]]] = {
    "push": (lambda: push, ["enqueued"]),
    "batch": (
        lambda: lambda: pushing.push_batch([EnvelopeFactory(), EnvelopeFactory()]),
        ["enqueued", "enqueued"],
    ),
    "fetch": (lambda: (lambda job: lambda: fetch.fetch([job.queue]))(push()), ["started"]),
    "ack": (lambda: (lambda job: lambda: ack.ack(job.id))(active()), ["completed"]),
    "fail": (
        lambda: (lambda job: lambda: fail.fail(job.id, BOOM))(active()),
        ["failed", "retrying"],
    ),
    "last fail": (
        lambda: (lambda job: lambda: fail.fail(job.id, BOOM))(active(retry=hourly(1))),
        ["failed", "discarded"],
    ),
    "hold": (
        lambda: (lambda job: lambda: fail.postpone(job.id, BOOM, delay=HOUR))(active()),
        ["returned"],
    ),
    "requeue": (lambda: (lambda job: lambda: fail.requeue(job.id))(active()), ["returned"]),
    "cancel": (lambda: (lambda job: lambda: cancel.cancel(job.id))(active()), ["cancelled"]),
    "cancel again": (
        lambda: (lambda job: lambda: cancel.cancel(job.pk))(in_state("cancelled")),
        [],
    ),
    "activate": (
        lambda: (lambda job: lambda: activate.activate(job.pk))(in_state("pending")),
        ["activated"],
    ),
    "retry": (
        lambda: (lambda job: lambda: retry.retry(job.pk))(in_state("discarded")),
        ["retried"],
    ),
    "lapse": (lambda: lapse(2), ["returned"]),
    "last lapse": (lambda: lapse(1), ["discarded"]),
    "expire": (expire, ["discarded"]),
}


@contextmanager
def reported() -> Iterator[list[str]]:
    """Collect the names of the signals that are sent, with what they carry checked."""
    heard: list[str] = []
    stack = ExitStack()
    for name, signal in vars(signals).items():
        if isinstance(signal, Signal):

            def receive(sender: Any, job: Any, _name: str = name, **details: Any) -> None:
                assert sender is Job
                assert job.id is not None
                assert ("failure" in details) or _name not in ("job_failed", "job_retrying")
                assert not connection.in_atomic_block
                heard.append(_name.removeprefix("job_"))

            stack.enter_context(receiving(receive, signal))
    with stack:
        yield heard


@pytest.mark.parametrize("case", CASES)
def test_a_signal_is_sent_after_the_commit(case: str) -> None:
    prepare, expected = CASES[case]
    operation = prepare()
    with reported() as heard:
        with transaction.atomic():
            operation()
            assert heard == []
        assert heard == expected


@pytest.mark.parametrize("case", CASES)
def test_what_was_rolled_back_sends_no_signal_and_what_has_no_transaction_sends_it_at_once(
    case: str,
) -> None:
    prepare, expected = CASES[case]
    operation = prepare()
    with reported() as heard:
        with transaction.atomic(), suppress(Rollback), transaction.atomic():
            operation()
            raise Rollback
        assert heard == []
        with transaction.atomic():
            operation()
            transaction.set_rollback(True)
        assert heard == []
        operation()
        assert heard == expected


def test_a_receiver_that_raises_harms_neither_the_job_nor_the_other_receivers() -> None:
    heard: list[str] = []

    def broken(**details: Any) -> None:
        raise Rollback

    def sound(job: Any, **details: Any) -> None:
        heard.append(job.state)

    job = active()
    completed = signals.job_completed
    with receiving(broken, completed), receiving(sound, completed):
        ack.ack(job.id)
    assert (heard, read(job.id).state) == (["completed"], "completed")


def test_an_error_after_the_commit_is_logged_and_reaches_no_caller(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done: list[str] = []

    def broken() -> None:
        raise Rollback

    with transaction.atomic():
        database.after_commit(broken)
        database.after_commit(lambda: done.append("in a transaction"))
    database.after_commit(broken)
    database.after_commit(lambda: done.append("without one"))
    assert done == ["in a transaction", "without one"]
    assert len([record for record in caplog.records if record.exc_info]) == 2


@pytest.fixture
def heard() -> Iterator[Callable[[], list[str]]]:
    """Listen like an idle worker, and return what has been announced since last asked."""
    session = connection.copy()
    session.ensure_connection()
    raw: Any = session.connection
    raw.execute("LISTEN ojs")

    def names() -> list[str]:
        # A notification that was sent has arrived once this later one has.
        connection.cursor().execute("SELECT pg_notify('ojs', '(end)')")
        found = []
        for notice in raw.notifies(timeout=BOUND):
            if notice.payload == "(end)":
                return found
            queue, sent_at = notice.payload.split(" ")
            assert float(sent_at) > 0
            found.append(queue)
        raise AssertionError("the end never came")

    try:
        yield names
    finally:
        session.close()


@pytest.mark.postgresql
def test_workers_are_notified_after_the_commit_once_for_each_queue(
    heard: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However long the commit takes on a busy machine, it is one moment.
    monkeypatch.setattr(notify, "INTERVAL", 60.0)
    notify.throttle.reset()
    with transaction.atomic(), CaptureQueriesContext(connection) as queries:
        for queue in ("n1", "n1", "n2"):
            push(queue=queue)
        push(queue="n3", scheduled_at=HOUR)
    # A notification inside the transaction would hold a lock at its commit that all wait for.
    assert not [query for query in queries if "notify" in query["sql"]]
    assert heard() == ["n1", "n2"]


@pytest.mark.postgresql
def test_workers_are_not_notified_of_what_was_rolled_back(heard: Any) -> None:
    with suppress(Rollback), transaction.atomic():
        push(queue="n4")
        raise Rollback
    assert heard() == []


@pytest.mark.postgresql
@pytest.mark.parametrize("in_transaction", [False, True])
def test_workers_are_notified_of_every_way_into_a_queue(
    heard: Any, monkeypatch: pytest.MonkeyPatch, in_transaction: bool
) -> None:
    monkeypatch.setattr(notify, "INTERVAL", 0)
    prepared = {
        "pending": lambda job: activate.activate(job.pk),
        "discarded": lambda job: retry.retry(job.pk),
        "active": lambda job: fail.requeue(job.pk),
        "scheduled": lambda job: (age(job.pk, 2 * HOUR), promotion.promote()),
    }
    ready = {state: in_state(state, queue=f"way-{state}") for state in prepared}
    given = active(queue="way-given")
    heard()
    with (
        transaction.atomic() if in_transaction else nullcontext(),
        CaptureQueriesContext(connection) as queries,
    ):
        for state, job in ready.items():
            prepared[state](job)
        rescue.give_back([(given.id, given.run)], worker_id="worker-a")
        queues.resume("way-resumed")
    assert in_transaction != any("notify" in query["sql"] for query in queries)
    ways = ["pending", "discarded", "active", "scheduled", "given", "resumed"]
    assert heard() == [f"way-{way}" for way in ways]


@pytest.mark.postgresql
def test_a_process_does_not_announce_a_queue_again_at_once(
    heard: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "INTERVAL", 3600)
    for _ in range(3):
        push(queue="n6")
    assert heard() == ["n6"]


def test_an_error_of_a_notification_is_logged_and_the_enqueue_succeeds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail_to_notify(*args: Any) -> None:
        raise RuntimeError("not a database error")

    monkeypatch.setattr(notify, "send", fail_to_notify)

    job = push()

    assert read(job.pk).state == "available"
    assert "fail_to_notify" in caplog.text or "not a database error" in caplog.text

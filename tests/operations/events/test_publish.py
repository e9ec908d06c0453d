"""The events of each change: the right ones, complete, with the change or not at all."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

import django_ojs as ojs
from django_ojs.extension import Actor, Known
from django_ojs.extensions.events.operations import log
from django_ojs.models import ActorKind
from django_ojs.models.worker import Directive
from django_ojs.operations import ack, beat, expiry, fail, fetch, promotion, queues
from django_ojs.operations import push as pushing
from django_ojs.operations.access.operator import acting
from django_ojs.operations.workers import removal, rescue
from django_ojs.spec.errors import DuplicateJob, OJSError
from django_ojs.spec.failure import Failure
from tests.databases import KIND
from tests.factories import (
    BOOM,
    GENERATED,
    HOUR,
    MINUTE,
    WORKER,
    EnvelopeFactory,
    WorkerFactory,
    active,
    age,
    hourly,
    in_state,
    push,
    push_many,
    silence,
    steady,
    take_back_dead,
)

pytestmark = pytest.mark.django_db(transaction=True)

ALL = override_settings(OJS={"KEEP_EVENTS": ["*"]})
NONE = override_settings(OJS={"KEEP_EVENTS": []})

Published = list[tuple[str, dict[str, Any]]]


def published() -> Published:
    """Return all events so far, as (type, data)."""
    found, page = [], log.read()
    found += page.events
    while page.has_more:
        page = log.read(after=page.cursor)
        found += page.events
    return [(event["type"], event["data"]) for event in found]


def types() -> list[str]:
    return [type for type, _ in published()]


def due() -> Any:
    job = in_state("scheduled")
    age(job.pk, 2 * HOUR)
    return job


def late() -> Any:
    job = push(expires_at=HOUR)
    age(job.pk, 2 * HOUR)
    return job


def lapsed(attempts: int) -> Any:
    job = active(retry=hourly(attempts))
    age(job.id, HOUR)
    return job


def by_worker(*claimed: Any) -> None:
    """Complete jobs as a worker does, which knows them and how long their handlers ran."""
    known = Known(
        jobs={job.id: job for job in claimed}, seconds=dict.fromkeys([j.id for j in claimed], 1.5)
    )
    ack.ack_batch(WORKER, [(job.id, job.run, None) for job in claimed], known)


def quiet() -> str:
    queues.pause("q")
    return "q"


@dataclass(frozen=True)
class Change:
    """What happens to what, and the events it must give."""

    before: Callable[[], Any]
    act: Callable[[Any], object]
    publishes: list[str]

    def ready(self) -> Any:
        """Make what is there before, without events."""
        with NONE:
            return self.before()


def nothing() -> None:
    """There is nothing before."""


CHANGES = {
    "push": Change(nothing, lambda _: push(), ["job.enqueued"]),
    "push for later": Change(nothing, lambda _: push(scheduled_at=HOUR), ["job.scheduled"]),
    "push pending": Change(nothing, lambda _: push(pending=True), []),
    "push many": Change(nothing, lambda _: push_many(3), ["job.enqueued"] * 3),
    "activate": Change(
        lambda: in_state("pending"), lambda job: ojs.activate(job.pk), ["job.enqueued"]
    ),
    "promote": Change(due, lambda _: promotion.promote(), ["job.enqueued"]),
    "fetch": Change(push, lambda job: fetch.fetch([job.queue]), ["job.started"]),
    "ack": Change(active, lambda job: ack.ack(job.id), ["job.completed"]),
    "ack in the handler": Change(active, lambda job: ack.complete(job.id), ["job.completed"]),
    "ack many": Change(
        active, lambda job: ack.ack_batch(WORKER, [(job.id, job.run, None)]), ["job.completed"]
    ),
    "ack many by a worker": Change(active, by_worker, ["job.completed"]),
    "fail": Change(active, lambda job: fail.fail(job.id, BOOM), ["job.failed", "job.retrying"]),
    "fail for good": Change(
        lambda: active(retry=hourly(1)),
        lambda job: fail.fail(job.id, BOOM),
        ["job.failed", "job.discarded"],
    ),
    "postpone": Change(
        active, lambda job: fail.postpone(job.id, BOOM, delay=HOUR), ["job.retrying"]
    ),
    "give back": Change(active, lambda job: fail.requeue(job.id), ["job.enqueued"]),
    "give back unstarted": Change(
        active,
        lambda job: rescue.give_back([(job.id, job.run)], worker_id=WORKER),
        ["job.enqueued"],
    ),
    "lapse": Change(lambda: lapsed(2), lambda _: rescue.lapse(), ["job.failed", "job.enqueued"]),
    "lapse for good": Change(
        lambda: lapsed(1), lambda _: rescue.lapse(), ["job.failed", "job.discarded"]
    ),
    "expire": Change(late, lambda _: expiry.expire(), ["job.expired"]),
    "cancel": Change(push, lambda job: ojs.cancel(job.pk), ["job.cancelled"]),
    "cancel again": Change(lambda: in_state("cancelled"), lambda job: ojs.cancel(job.pk), []),
    "retry": Change(lambda: in_state("discarded"), lambda job: ojs.retry(job.pk), ["job.enqueued"]),
    "extend": Change(active, lambda job: beat.extend(WORKER, job.id), ["job.heartbeat"]),
    "pause": Change(nothing, lambda _: queues.pause("q"), ["queue.paused"]),
    "pause again": Change(quiet, queues.pause, []),
    "resume": Change(quiet, queues.resume, ["queue.resumed"]),
    "resume what runs": Change(nothing, lambda _: queues.resume("q"), []),
    "create a queue": Change(nothing, lambda _: queues.create("q"), ["queue.created"]),
    "configure a queue": Change(
        nothing, lambda _: queues.configure("q", {}), ["queue.config_updated"]
    ),
    "delete a queue": Change(quiet, queues.delete, ["queue.deleted"]),
    "first beat": Change(
        nothing, lambda _: WorkerFactory(), ["worker.started", "worker.heartbeat"]
    ),
    "next beat": Change(WorkerFactory, lambda _: WorkerFactory(), ["worker.heartbeat"]),
    "beat with a job": Change(
        lambda: (WorkerFactory(), active())[1],
        lambda job: beat.beat(WORKER, holding=[job.id]),
        ["worker.heartbeat", "job.heartbeat"],
    ),
    "quiet by itself": Change(
        WorkerFactory,
        lambda _: WorkerFactory(state=Directive.QUIET),
        ["worker.quiet", "worker.heartbeat"],
    ),
    "quiet as before": Change(
        lambda: (WorkerFactory(), WorkerFactory(state=Directive.QUIET)),
        lambda _: WorkerFactory(state=Directive.QUIET),
        ["worker.heartbeat"],
    ),
    "directed to be quiet": Change(
        WorkerFactory,
        lambda _: (beat.direct(WORKER, Directive.QUIET), beat.direct(WORKER, Directive.QUIET)),
        ["worker.quiet"],
    ),
    "quiet as it was directed": Change(
        lambda: (WorkerFactory(), beat.direct(WORKER, Directive.QUIET)),
        lambda _: WorkerFactory(state=Directive.QUIET),
        ["worker.heartbeat"],
    ),
    "stopping by itself": Change(
        WorkerFactory,
        lambda _: WorkerFactory(state=Directive.TERMINATE),
        ["worker.quiet", "worker.heartbeat"],
    ),
    "stopping after it was quiet": Change(
        lambda: (WorkerFactory(), WorkerFactory(state=Directive.QUIET)),
        lambda _: WorkerFactory(state=Directive.TERMINATE),
        ["worker.heartbeat"],
    ),
    "directed to stop": Change(
        WorkerFactory,
        lambda _: (beat.direct(WORKER, Directive.TERMINATE), beat.direct(WORKER, Directive.QUIET)),
        ["worker.quiet"],
    ),
    "end by a signal, without a job": Change(
        WorkerFactory,
        lambda _: removal.remove(WORKER, reason="signal"),
        ["worker.quiet", "worker.stopped"],
    ),
    "end by a signal, after it was quiet": Change(
        lambda: (WorkerFactory(), WorkerFactory(state=Directive.TERMINATE)),
        lambda _: removal.remove(WORKER, reason="signal"),
        ["worker.stopped"],
    ),
    "deregister": Change(WorkerFactory, lambda _: removal.remove(WORKER), ["worker.stopped"]),
    "deregister again": Change(nothing, lambda _: removal.remove(WORKER), []),
    "die": Change(
        lambda: (WorkerFactory(), active(), silence(WORKER)),
        lambda _: take_back_dead(),
        ["job.failed", "job.enqueued", "worker.stopped"],
    ),
}
each_change = pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)


@each_change
def test_a_change_that_is_rolled_back_is_not_published(change: Change) -> None:
    before = change.ready()
    with ALL:
        with transaction.atomic():
            change.act(before)
            transaction.set_rollback(True)
        with transaction.atomic(), transaction.atomic():
            change.act(before)
            transaction.set_rollback(True)
        assert types() == []


@each_change
def test_what_is_not_kept_is_not_stored(change: Change) -> None:
    before = change.ready()
    with NONE:
        change.act(before)
        assert types() == []


#: The fields that ojs-events §4 requires, beside `job_type` and `queue` of job events.
REQUIRED = {
    "job.enqueued": set(),
    "job.scheduled": {"scheduled_at"},
    "job.started": {"worker_id", "attempt"},
    "job.completed": {"duration_ms", "attempt"},
    "job.failed": {"attempt", "error"},
    "job.retrying": {"attempt", "max_attempts", "next_retry_at", "error"},
    "job.discarded": {"total_attempts", "last_error"},
    "job.cancelled": set(),
    "job.heartbeat": {"worker_id", "attempt", "visible_until"},
    "job.expired": {"created_at", "expired_at", "ttl_ms"},
    "queue.paused": {"queue"},
    "queue.resumed": {"queue"},
    "queue.created": {"queue"},
    "queue.deleted": {"queue"},
    "queue.config_updated": {"queue"},
    "worker.started": {"worker_id", "queues", "concurrency"},
    "worker.stopped": {"worker_id", "reason"},
    "worker.quiet": {"worker_id", "active_jobs"},
    "worker.heartbeat": {"worker_id", "active_jobs", "queues"},
}


def test_every_type_that_is_published_is_checked() -> None:
    assert {type for change in CHANGES.values() for type in change.publishes} == set(REQUIRED)


@pytest.mark.requirement("EV-05", "EV-06", "EV-07", "EV-08", "EV-S02", "EV-S03", "QC-S06")
@each_change
def test_a_change_is_published_once_with_all_that_the_document_requires(change: Change) -> None:
    before = change.ready()
    with ALL:
        change.act(before)
        events = log.read().events
    assert [event["type"] for event in events] == change.publishes
    for event in events:
        type, data = event["type"], event["data"]
        required = REQUIRED[type]
        if type.startswith("job."):
            required = required | {"job_id", "job_type", "queue", "state"}
            assert event["subject"] == data["job_id"]
            assert data["job_type"] == "test.job"
        assert data.keys() >= required
        assert None not in data.values()
        assert event["subject"] == data.get("job_id", data.get("worker_id", data.get("queue")))


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.mark.requirement("EV-16")
@pytest.mark.parametrize(
    ("meta", "trace"),
    [
        ({"trace_id": TRACE}, TRACE),
        ({"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}, TRACE),
        ({"trace_id": 7, "traceparent": "a secret"}, None),
        ({"trace_id": "x" * 65}, None),
    ],
)
def test_each_event_of_a_job_has_the_trace_that_its_meta_has(
    meta: dict[str, Any], trace: str | None
) -> None:
    with ALL:
        job = push(meta=meta)
        (claimed,) = fetch.fetch([job.queue], worker_id=WORKER)
        beat.extend(WORKER, claimed.id)
        ack.ack(claimed.id)
        assert [data.get("trace_id") for _, data in published()] == [trace] * 4


@pytest.mark.requirement("EV-11")
def test_the_events_of_a_job_are_in_the_order_of_its_life() -> None:
    with ALL:
        job = push(retry=hourly(2))
        fail.fail(fetch.fetch([job.queue], worker_id=WORKER)[0].id, BOOM)
        age(job.pk, 2 * HOUR)
        ack.ack(fetch.fetch([job.queue], worker_id=WORKER)[0].id)
        assert types() == [
            "job.enqueued",
            "job.started",
            "job.failed",
            "job.retrying",
            "job.enqueued",
            "job.started",
            "job.completed",
        ]


SECRET = "hunter2"


def test_no_event_carries_arguments_results_details_or_backtraces() -> None:
    failure = Failure(
        type="Boom", message="it broke", backtrace=(SECRET,), details={"value": SECRET}
    )
    with ALL:
        job = push(args=[SECRET], meta={"key": SECRET}, retry=hourly(2))
        (claimed,) = fetch.fetch([job.queue], worker_id=WORKER)
        fail.fail(claimed.id, failure)
        age(job.pk, 2 * HOUR)
        (claimed,) = fetch.fetch([job.queue], worker_id=WORKER)
        ack.ack(claimed.id, result=SECRET)
        assert len(published()) >= 5
        assert SECRET not in repr(log.read())


def test_a_failure_is_published_with_its_code_and_its_message_cut() -> None:
    job = active(retry=hourly(1))
    with ALL:
        fail.fail(job.id, Failure(type="Boom", message="x" * 5000, retryable=False))
        (_, failed), (_, discarded) = published()
    assert failed["error"].keys() == {"code", "message", "retryable"}
    assert (failed["error"]["code"], failed["error"]["retryable"]) == ("Boom", False)
    assert failed["worker_id"] == WORKER
    assert len(failed["error"]["message"]) == 1000
    assert discarded["last_error"].keys() == {"code", "message"}
    assert (discarded["total_attempts"], discarded["dead_letter"]) == (1, True)


def test_the_state_is_the_one_that_the_change_led_to() -> None:
    job = active(retry=hourly(2))
    with ALL:
        fail.fail(job.id, BOOM)
        age(job.id, 2 * HOUR)
        promotion.promote()
        assert [data["state"] for _, data in published()] == ["retryable", "retryable", "available"]


def test_the_event_names_who_paused_a_queue_where_it_is_known() -> None:
    with acting(Actor(kind=ActorKind.USER, name="user:ops")):
        queues.pause("a")
    with acting(Actor(kind=ActorKind.USER, name="x" * 999)):
        queues.resume("a")
    queues.pause("b")
    (_, paused), (_, resumed), (_, nobody) = published()
    assert paused == {"queue": "a", "paused_by": "user:ops"}
    assert len(resumed["resumed_by"]) == 255
    assert nobody == {"queue": "b"}


def test_a_worker_is_published_as_it_describes_itself() -> None:
    now = datetime.now(UTC)
    WorkerFactory(queues=("a", "b"), concurrency=8, started_at=now)
    removal.remove(WORKER, reason="signal", jobs_completed=12)
    (_, started), (_, quiet), (_, stopped) = published()
    assert quiet == {"worker_id": WORKER, "active_jobs": 0}
    assert started == {"worker_id": WORKER, "queues": ["a", "b"], "concurrency": 8}
    assert stopped.pop("uptime_ms") >= 0
    assert stopped == {"worker_id": WORKER, "reason": "signal", "jobs_completed": 12}


def test_two_that_find_the_same_dead_worker_publish_it_once() -> None:
    WorkerFactory()
    silence(WORKER, MINUTE)
    first, second = rescue.DeadWorkers(), rescue.DeadWorkers()
    with steady():
        for each in (first, second, first, second):
            each.take_back()
    assert types() == ["worker.started", "worker.stopped"]


def test_of_a_batch_only_what_was_still_held_is_published() -> None:
    kept, lost = active(), active()
    ojs.cancel(lost.id)
    with ALL:
        ack.ack_batch(WORKER, [(job.id, job.run, None) for job in (kept, lost)])
        assert [data["job_id"] for _, data in published()] == [str(kept.id)]


@pytest.mark.statements
def test_what_a_worker_knows_of_its_jobs_needs_no_query_for_their_events() -> None:
    first, lost, last = (active() for _ in range(3))
    ojs.cancel(lost.id)
    with ALL, CaptureQueriesContext(connection) as queries:
        by_worker(first, lost, last)
    assert not any(q["sql"].startswith("SELECT") and "ojs_job" in q["sql"] for q in queries)
    with ALL:
        (one, other) = [data for _, data in published()]
    assert [one["job_id"], other["job_id"]] == [str(first.id), str(last.id)]
    assert {one["duration_ms"], other["duration_ms"]} == {1500}
    assert (one["worker_id"], one["attempt"]) == (WORKER, 1)


def test_a_job_that_is_rejected_is_not_published_and_leaves_the_transaction_usable() -> None:
    with ALL:
        job = push()
        with transaction.atomic():
            with pytest.raises(DuplicateJob):
                push(id=job.pk)
            with pytest.raises(DuplicateJob):
                pushing.push_batch([EnvelopeFactory(), EnvelopeFactory(id=job.pk)])
            other = push()
        assert [data["job_id"] for _, data in published()] == [str(job.pk), str(other.pk)]


def test_what_is_rejected_is_not_published() -> None:
    done = in_state("completed")
    with ALL:
        for act in (ojs.cancel, ojs.activate, ojs.retry, ack.ack, ack.complete):
            with pytest.raises(OJSError):
                act(done.pk)
        assert types() == []


@pytest.mark.parametrize("number", [1, 1000])
def test_events_of_a_batch_are_stored_in_one_statement(number: int) -> None:
    wanted = EnvelopeFactory.create_batch(number, queue="batch")
    with ALL, CaptureQueriesContext(connection) as queries:
        pushing.push_batch(wanted, GENERATED)
    assert len([q for q in queries if "INTO ojs_event" in q["sql"]]) == 1
    with ALL:
        assert [data["job_id"] for _, data in published()] == [str(job.id) for job in wanted]


@pytest.mark.statements
def test_what_is_neither_kept_nor_listened_to_costs_no_statement() -> None:
    jobs = push_many(3)
    with CaptureQueriesContext(connection) as queries:
        push()
        claimed = fetch.fetch([jobs[0].queue], count=3, worker_id=WORKER, due=False)
        ack.ack_batch(WORKER, [(job.id, job.run, None) for job in claimed])
    said = ["UPDATE" if "UPDATE ojs_job" in q["sql"] else q["sql"].split()[0] for q in queries]
    assert said.count("CALL" if KIND == "postgresql" else "INSERT") == 1
    assert said.count("UPDATE") == 2
    assert set(said) <= {"CALL", "INSERT", "UPDATE", "SELECT"}  # A notification is a SELECT.
    assert not any("ojs_event" in q["sql"] for q in queries)


def test_an_event_that_cannot_be_stored_takes_the_change_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from django_ojs.extensions.events import storage

    def broken(*_: object) -> None:
        raise RuntimeError("the events broke")

    monkeypatch.setattr(storage, "add", broken)
    job, waiting = active(), push()
    with ALL:
        for act in (
            lambda: ack.ack(job.id),
            lambda: ack.ack_batch(WORKER, [(job.id, job.run, None)]),
            lambda: fail.fail(job.id, BOOM),
            lambda: push(queue="never"),
        ):
            with pytest.raises(RuntimeError, match="the events broke"):
                act()
        # A claim is repeated job by job: one that no event can tell of waits, and stops no other.
        assert fetch.fetch([waiting.queue], due=False) == []
    monkeypatch.undo()
    with suppress(ojs.OJSError):
        assert ojs.get_job(job.id).state == "active"
    assert ojs.get_job(waiting.pk).state == "scheduled"
    assert not ojs.Job.objects.filter(queue="never").exists()

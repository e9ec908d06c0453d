"""Each transition of a job has one event that tells it (ojs-realtime §4.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import override_settings

import django_ojs as ojs
from django_ojs.extensions.events import spec as events
from django_ojs.extensions.events.models import Event
from django_ojs.extensions.events.operations import log
from django_ojs.operations import ack, expiry, fail, fetch, promotion, queues, run_now
from django_ojs.operations.workers import rescue
from django_ojs.spec import published
from django_ojs.spec.states import TRANSITIONS, State, Trigger
from tests.factories import BOOM, HOUR, WORKER, active, age, hourly, in_state, jobs, push

pytestmark = pytest.mark.django_db(transaction=True)


def expiring(state: str) -> Any:
    retry = {"retry": hourly()} if state == "retryable" else {}
    job = in_state(state, expires_at=HOUR, **retry)
    age(job.pk, 2 * HOUR)
    return job


def due(state: str) -> Any:
    job = in_state(state, **({"retry": hourly()} if state == "retryable" else {}))
    age(job.pk, 2 * HOUR)
    return job


def lapsed(attempts: int) -> Any:
    job = active(retry=hourly(attempts))
    age(job.id, 2 * HOUR)
    return job


def full() -> Any:
    queues.configure("full", {"backpressure": {"max_depth": 1, "strategy": "drop_oldest"}})
    return push(queue="full")


def limited(on_limit: str) -> Any:
    policy = {"key": "acme", "concurrency": 0, "on_limit": on_limit}
    return push(queue="limited", rate_limit=policy)


def retried_and_rescheduled() -> Any:
    policy = {"key": "acme", "concurrency": 1, "on_limit": "reschedule"}
    job = active(queue="limited", retry=hourly(), rate_limit=policy)
    fail.fail(job.id, BOOM)
    active(queue="limited", rate_limit=policy)
    age(job.id, 2 * HOUR)
    promotion.promote()
    fetch.fetch(["limited"], due=False)
    age(job.id, 2 * HOUR)
    return job


#: Of each transition: what is before, and what makes it. Two ways where its operation has two.
Move = tuple[Callable[[], Any], Callable[[Any], object]]
MOVES: dict[tuple[Trigger, str, str], list[Move]] = {
    (Trigger.TIMER, source, "available"): [
        (lambda source=source: due(source), lambda _: promotion.promote()),
        (lambda source=source: in_state(source), lambda job: run_now.run_now(job.pk)),
    ]
    for source in ("scheduled", "retryable")
}
# A job that has run is scheduled where a limit has put it off.
for promote in (promotion.promote, lambda: promotion.promote_by_queue(["limited"])):
    MOVES[Trigger.TIMER, "scheduled", "available"].append(
        (retried_and_rescheduled, lambda _, promote=promote: promote())
    )
MOVES |= {
    (Trigger.CANCEL, source, "cancelled"): [
        (lambda source=source: in_state(source), lambda job: ojs.cancel(job.pk))
    ]
    for source in ("scheduled", "available", "pending", "retryable", "active")
}
MOVES |= {
    (Trigger.EXPIRE, source, "discarded"): [
        (lambda source=source: expiring(source), lambda _: expiry.expire())
    ]
    for source in ("scheduled", "available", "pending", "retryable")
}
MOVES |= {
    (Trigger.DELETE_QUEUE, source, "discarded"): [
        (
            lambda source=source: in_state(source),
            lambda job: queues.delete(job.queue, strategy="discard"),
        )
    ]
    for source in ("scheduled", "available", "pending", "retryable")
}
MOVES |= {
    (Trigger.ACTIVATE, "pending", "available"): [
        (lambda: in_state("pending"), lambda job: ojs.activate(job.pk))
    ],
    (Trigger.FETCH, "available", "active"): [(push, lambda job: fetch.fetch([job.queue]))],
    (Trigger.ACK, "active", "completed"): [
        (active, lambda job: ack.ack(job.id)),
        (active, lambda job: ack.ack_batch(WORKER, [(job.id, job.run, None)])),
    ],
    (Trigger.FAIL, "active", "retryable"): [
        (active, lambda job: fail.fail(job.id, BOOM)),
        (active, lambda job: fail.postpone(job.id, BOOM, delay=HOUR)),
    ],
    (Trigger.FAIL, "active", "discarded"): [
        (lambda: active(retry=hourly(1)), lambda job: fail.fail(job.id, BOOM))
    ],
    (Trigger.RETURN, "active", "available"): [
        (active, lambda job: fail.requeue(job.id)),
        (active, lambda job: rescue.give_back([(job.id, job.run)], worker_id=WORKER)),
    ],
    (Trigger.LAPSE, "active", "available"): [(lambda: lapsed(2), lambda _: rescue.lapse())],
    (Trigger.LAPSE, "active", "discarded"): [(lambda: lapsed(1), lambda _: rescue.lapse())],
    (Trigger.RETRY, "discarded", "available"): [
        (lambda: in_state("discarded"), lambda job: ojs.retry(job.pk))
    ],
    (Trigger.DROP, "available", "discarded"): [
        (full, lambda _: push(queue="full")),
        (lambda: limited("drop"), lambda job: fetch.fetch([job.queue])),
    ],
    (Trigger.RESCHEDULE, "available", "scheduled"): [
        (lambda: limited("reschedule"), lambda job: fetch.fetch([job.queue]))
    ],
}


def test_every_transition_of_the_table_is_here() -> None:
    known = {(row.trigger, row.source, row.target) for row in TRANSITIONS if row.source is not None}
    assert known == set(MOVES)


def states() -> dict[str, str]:
    return {str(key): state for key, state in jobs().values_list("pk", "state")}


@pytest.mark.requirement("RT-008")
@pytest.mark.parametrize(
    ("source", "target", "before", "act"),
    [
        pytest.param(*move, before, act, id=f"{trigger} {' to '.join(move)} {number}")
        for (trigger, *move), ways in MOVES.items()
        for number, (before, act) in enumerate(ways)
    ],
)
def test_a_transition_is_told_once_with_both_states(
    source: str, target: str, before: Callable[[], Any], act: Callable[[Any], object]
) -> None:
    with override_settings(OJS={"KEEP_EVENTS": []}):
        job = before()
        was = states()
    with override_settings(OJS={"KEEP_EVENTS": [published.STATE_CHANGED]}):
        act(job)
        told = [change for each in log.read().events if (change := events.state_change(each))]
    now = states()
    moved = {key: state for key, state in was.items() if now[key] != state}
    assert [(each["job_id"], each["from"], each["to"]) for each in told] == [
        (key, source, target) for key in moved
    ]
    assert told
    assert {(was[key], now[key]) for key in moved} == {(source, target)}


def test_a_new_job_changes_from_no_state_and_a_failure_is_one_change() -> None:
    with override_settings(OJS={"KEEP_EVENTS": ["job.*"]}):
        job = active(retry=hourly())
        fail.fail(job.id, BOOM)
        told = [events.state_change(each) for each in log.read().events]
    found = [(each["from"], each["to"]) for each in told if each]
    assert found == [
        (State.AVAILABLE, State.ACTIVE),
        (State.ACTIVE, State.RETRYABLE),
    ]


@pytest.mark.requirement("RT-008")
def test_without_the_setting_a_life_stores_no_event() -> None:
    with override_settings(OJS={}):
        ack.ack(active().id)
        fail.fail(active(retry=hourly()).id, BOOM)
    assert not Event.objects.exists()

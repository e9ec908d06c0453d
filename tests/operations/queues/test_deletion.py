"""A queue is deleted, and no job is lost that nobody wanted gone."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ojs.models import Job, Queue
from django_ojs.operations import ack, fail, fetch, queue_rows, queues
from django_ojs.spec.errors import Conflict, InvalidQueue, InvalidRequest, NotFound, QueueFull
from django_ojs.storage.figures import counts
from tests.factories import (
    BOOM,
    active,
    hourly,
    in_state,
    jobs,
    push,
    push_many,
    read,
)
from tests.threads import at_once

pytestmark = pytest.mark.django_db

WAITING = ("available", "scheduled", "retryable", "pending")


def known() -> list[str]:
    return [queue.name for queue in queues.listing().rows]


@pytest.mark.requirement("QC-05")
@pytest.mark.parametrize("state", [*WAITING, "active"])
def test_reject_rejects_while_a_job_has_not_ended(state: str) -> None:
    job = in_state(state, queue="a")
    with pytest.raises(Conflict) as caught:
        queues.delete("a")
    assert caught.value.details == {"queue": "a", "jobs": 1}
    assert (read(job.pk).state, known()) == (state, ["a"])


def test_an_empty_queue_goes_with_its_row() -> None:
    queues.pause("a")
    done = queues.delete("a", strategy="reject")
    assert (done.jobs_affected, done.waiting, done.state) == (0, 0, "deleted")
    assert not Queue.objects.exists()
    assert known() == []


def test_a_queue_with_history_goes_and_the_history_stays() -> None:
    job = in_state("completed", queue="a")
    queues.configure("a", {"max_envelope_bytes": 1})
    assert queues.delete("a").state == "deleted"
    assert (read(job.pk).state, known()) == ("completed", [])
    with pytest.raises(NotFound):
        queues.get("a")
    assert queue_rows.settle_deleted() == 0
    Job.objects.all().delete()
    assert known() == []
    assert queue_rows.settle_deleted() == 1
    assert not Queue.objects.exists()


def test_deleted_queues_that_keep_their_history_hide_no_other_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_rows, "BATCH", 1)
    for name in ("a", "b", "c"):
        in_state("completed", queue=name)
        queues.delete(name)
    push(queue="c")
    assert queue_rows.settle_deleted() == 1
    assert Queue.objects.get(pk="c").config == {}


@pytest.mark.requirement("QC-S05")
def test_discard_ends_what_waits_and_lets_run_what_runs() -> None:
    held = active(queue="a")
    waiting = [in_state(state, queue="a").pk for state in WAITING if state != "retryable"]
    done = queues.delete("a", strategy="discard")
    assert (done.jobs_affected, done.waiting, done.state) == (3, 0, "draining")
    for key in waiting:
        job = read(key)
        assert (job.state, job.discard_reason, job.dead_letter) == ("discarded", "operator", False)
        assert job.error["type"] == "queue_deleted"
        assert "completed_at" not in job.envelope()
    assert queues.get("a").state == "draining"
    assert ack.ack(held.id).state == "completed"
    assert known() == []


def test_a_retryable_job_is_discarded_too() -> None:
    job = in_state("retryable", queue="a")
    assert queues.delete("a", strategy="discard").jobs_affected == 1
    assert read(job.pk).state == "discarded"


@pytest.mark.requirement("QC-S05")
def test_move_takes_what_waits_to_the_target_in_its_order() -> None:
    old = [push(queue="a").pk for _ in range(3)]
    new = push(queue="b").pk
    timed = in_state("scheduled", queue="a").pk
    done = queues.delete("a", strategy="move", target="b")
    assert (done.jobs_affected, done.target, done.state) == (4, "b", "deleted")
    assert (read(timed).queue, read(timed).state) == ("b", "scheduled")
    assert [job.id for job in fetch.fetch(["b"], count=9)] == [*old, new]
    assert known() == ["b"]


def test_a_job_that_fails_after_the_deletion_makes_the_queue_anew() -> None:
    held = active(queue="a", retry=hourly(3))
    queues.configure("a", {"max_envelope_bytes": 1})
    queues.delete("a", strategy="discard")
    fail.fail(held.id, BOOM)
    status = queues.get("a")
    assert (status.state, status.depth, status.config.max_envelope_bytes) == ("active", 1, None)
    # Reading has changed nothing; maintenance keeps it known when its jobs have ended.
    assert Queue.primary.get(pk="a").config
    assert queue_rows.settle_deleted() == 1
    Job.objects.all().delete()
    assert queues.get("a").created_at == status.created_at


def test_a_deleted_queue_that_was_paused_hands_out_new_jobs() -> None:
    in_state("completed", queue="a")
    queues.pause("a")
    queues.delete("a")
    job = push(queue="a")
    assert [got.id for got in fetch.fetch(["a"])] == [job.pk]


def test_what_one_call_does_not_reach_is_said_and_the_next_call_does_it() -> None:
    push_many(7, queue="a")
    queues.configure("a", {"max_envelope_bytes": 1})
    done = queues.delete("a", strategy="discard", most=4)
    assert (done.jobs_affected, done.waiting, done.state) == (4, 3, "draining")
    assert queues.get("a").config.max_envelope_bytes == 1
    done = queues.delete("a", strategy="discard", most=4)
    assert (done.jobs_affected, done.waiting, done.state) == (3, 0, "deleted")


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"strategy": "purge"}, "strategy"),
        ({"strategy": "move", "target": "a"}, "target_queue"),
        ({"strategy": "discard", "target": "b"}, "target_queue"),
    ],
)
def test_a_request_that_makes_no_sense_is_rejected(values: dict[str, Any], field: str) -> None:
    push(queue="a")
    with pytest.raises(InvalidRequest) as caught:
        queues.delete("a", **values)
    assert caught.value.details["field"] == field
    assert counts.depth("a") == 1


@pytest.mark.parametrize("target", [None, "_default", "No"])
def test_jobs_move_only_to_where_jobs_can_be(target: str) -> None:
    push(queue="a")
    with pytest.raises(InvalidQueue):
        queues.delete("a", strategy="move", target=target)


@pytest.mark.parametrize("name", ["unknown", "gone"])
def test_a_queue_that_is_not_there_is_not_deleted(name: str) -> None:
    in_state("completed", queue="gone")
    queues.delete("gone")
    with pytest.raises(NotFound):
        queues.delete(name, strategy="discard")


@pytest.mark.postgresql
def test_no_batch_reads_the_table_of_jobs() -> None:
    for state in ("retryable", "scheduled", "pending", "available"):
        in_state(state, queue="a")
    with CaptureQueriesContext(connection) as captured:
        assert queues.delete("a", strategy="discard").jobs_affected == 4
    looks = [
        query["sql"]
        for query in captured
        if 'FROM "ojs_job"' in query["sql"] and " ORDER BY " in query["sql"]
    ]
    assert len(looks) == 4
    with connection.cursor() as cursor:
        # So few rows are read as a whole by choice: the plan is what there would be with many.
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("SET LOCAL enable_sort = off")
        for sql in looks:
            cursor.execute(f"EXPLAIN {sql}")
            plan = "\n".join(line for (line,) in cursor.fetchall())
            assert "Index Only Scan" in plan or "Index Scan" in plan
            assert "Sort" not in plan


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("strategy", ["discard", "move"])
def test_deleting_while_others_push_and_claim_loses_no_job(strategy: str) -> None:
    number, rounds = 40, 15
    claimed: list[Any] = []

    def push_some() -> None:
        for _ in range(rounds):
            push_many(number, queue="race")

    def claim_some() -> None:
        for _ in range(rounds * 3):
            claimed.extend(fetch.fetch(["race", "target"], count=7, worker_id="w", due=False))

    def delete() -> None:
        target = "target" if strategy == "move" else None
        for _ in range(rounds):
            try:
                queues.delete("race", strategy=strategy, target=target)  # type: ignore[arg-type]  # a parameter
            except NotFound:
                continue

    at_once([push_some, claim_some, delete])
    keys = [job.id for job in claimed]
    assert len(keys) == len(set(keys))
    # Whoever was handed out still runs; each of the others waits, or was discarded on purpose.
    assert jobs().filter(pk__in=keys, state="active").count() == len(keys)
    assert jobs().count() == number * rounds
    others = jobs().exclude(pk__in=keys)
    ended = others.filter(state="discarded", discard_reason="operator")
    waits = others.filter(state="available", queue__in=["race", "target"])
    assert ended.count() + waits.count() == number * rounds - len(keys)
    assert (strategy == "discard") or not ended.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("old", [2, 1_000])
def test_a_new_queue_of_the_name_has_the_default_bound_and_not_the_old_one(
    old: int, history: bool
) -> None:
    queues.configure_default({"backpressure": {"max_depth": 5}})
    queues.configure("a", {"backpressure": {"max_depth": old}})
    if history:
        in_state("completed", queue="a")
    push(queue="a")
    queues.delete("a", strategy="discard")
    for _ in range(5):
        push(queue="a")
    with pytest.raises(QueueFull) as caught:
        push(queue="a")
    assert (caught.value.depth, caught.value.bound) == (5, 5)


@pytest.mark.django_db(transaction=True)
def test_a_new_queue_of_the_name_has_the_bound_of_the_settings(settings: Any) -> None:
    settings.OJS = settings.OJS | {"QUEUES": {"a": {"backpressure": {"max_depth": 2}}}}
    queues.configure("a", {"backpressure": {"max_depth": 1_000}})
    queues.delete("a", strategy="discard")
    push_many(2, queue="a")
    with pytest.raises(QueueFull):
        push(queue="a")

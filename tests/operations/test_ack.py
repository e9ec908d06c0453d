"""ACK, ojs-core §7.3, one MUST after the other; and the fence of worker-protocol §5.6."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from django.db.models.functions import Now

from django_ojs.operations import ack, cancel, fail, fetch, retry
from django_ojs.operations.workers import rescue
from django_ojs.spec.errors import ClaimLost, Conflict, InvalidRequest, PayloadTooLarge
from django_ojs.spec.ids import uuid7
from django_ojs.spec.json import JSON
from django_ojs.storage.transitions import Claim
from tests.cases import together
from tests.factories import (
    BOOM,
    HOUR,
    MINUTE,
    WORKER,
    active,
    age,
    claim,
    held,
    hourly,
    jobs,
    push_many,
    read,
    snapshot,
)

pytestmark = pytest.mark.django_db
RESULTS: list[JSON] = [None, False, 0, 1.5, 1e300, "", "ż", [], {}, [None], {"a": {"b": [1]}}]


@pytest.mark.requirement("CORE-7.3-3")
def test_must_1_the_job_moves_from_active_to_completed() -> None:
    job = active()
    assert ack.ack(job.id, claim=held(job)).state == "completed"
    assert read(job.id).state == "completed"


@pytest.mark.requirement("CORE-7.3-4")
def test_must_2_completed_at_is_the_time_of_the_ack() -> None:
    job = active()
    age(job.id, HOUR)
    done = ack.ack(job.id)
    recent = {"finished_at__range": (Now() - MINUTE, Now() + MINUTE)}
    assert jobs().filter(pk=job.id, **recent).exists()
    rendered = done.envelope()
    assert "completed_at" in rendered
    assert not {"discarded_at", "cancelled_at"} & rendered.keys()


@pytest.mark.requirement("CORE-7.3-5")
@together("result", RESULTS, ids=str, undo=True)
@together("batch", [False, True], undo=True)
def test_must_3_the_result_is_stored_as_it_was_given(result: JSON, batch: bool) -> None:
    job = active()
    if batch:
        assert ack.ack_batch(WORKER, [(job.id, job.run, result)]) == {job.id}
    else:
        ack.ack(job.id, result=result)
    stored = read(job.id).result
    assert stored == result
    assert type(stored) is type(result)
    # No result is no `result` in the response, and the column is empty rather than JSON's null.
    assert jobs().filter(pk=job.id, result__isnull=True).exists() is (result is None)


@pytest.mark.parametrize("batch", [False, True])
def test_should_4_the_error_of_an_earlier_attempt_is_cleared_and_stays_in_the_history(
    batch: bool,
) -> None:
    job = active(queue="a", retry=hourly())
    fail.fail(job.id, BOOM)
    age(job.id, 2 * HOUR)
    (again,) = fetch.fetch(["a"], worker_id=WORKER)
    if batch:
        ack.ack_batch(WORKER, [(again.id, again.run, None)])
    else:
        ack.ack(again.id)
    rendered = read(job.id).envelope()
    assert "error" not in rendered
    assert [error["type"] for error in rendered["errors"]] == ["Boom"]


def test_the_lease_ends_with_the_ack() -> None:
    job = active()
    ack.ack(job.id)
    assert read(job.id).lease_until is None


@pytest.mark.requirement("CORE-5.3-10")
@together(
    ("result", "place"),
    [
        (Decimal("1.5"), "result is a Decimal"),
        ({"a": [float("nan")]}, r"result\.a\[0\]"),
        ({1: 2}, "result"),
        (2**60, "result"),
        ("a\0b", "result"),
        (object(), "result"),
    ],
    undo=True,
)
def test_a_result_that_json_cannot_carry_is_rejected_and_the_job_stays_active(
    result: Any, place: str
) -> None:
    job = active()
    before = snapshot(job.id)
    with pytest.raises(InvalidRequest, match=place):
        ack.ack(job.id, result=result)
    assert snapshot(job.id) == before


def test_a_result_over_its_limit_is_rejected_and_the_job_stays_active(settings: Any) -> None:
    settings.OJS = settings.OJS | {"MAX_RESULT_BYTES": 100}
    job = active()
    before = snapshot(job.id)
    with pytest.raises(PayloadTooLarge, match="result must be at most 100 bytes") as caught:
        ack.ack(job.id, result="x" * 99)
    assert caught.value.details["actual_bytes"] == 101
    assert snapshot(job.id) == before
    assert ack.ack(job.id, result="x" * 98).result == "x" * 98


#: "complete" is the ACK in the transaction of a handler.
OPERATIONS = ["ack", "complete", "fail", "hold", "requeue"]
WRONG = [{"worker_id": "worker-b"}, {"attempt": 2}, {"run": 7}, {"attempt": 0}, {"run": 0}]


@together("wrong", WRONG, ids=str, undo=True)
@together("operation", OPERATIONS, undo=True)
def test_a_claim_that_is_wrong_in_one_thing_is_rejected_and_changes_nothing(
    operation: str, wrong: dict[str, Any]
) -> None:
    job = active()
    before = snapshot(job.id)
    with pytest.raises(ClaimLost, match="active under another claim") as caught:
        give(operation, job.id, replace(held(job), **wrong))
    assert caught.value.details["current_state"] == "active"
    assert snapshot(job.id) == before


@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_a_claim_leaves_out_is_not_checked(operation: str) -> None:
    for part in ({}, {"worker_id": WORKER}, {"attempt": 1}, {"run": 1}):
        job = active()
        give(operation, job.id, Claim(**part))
        assert read(job.id).state != "active"


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_id_of_a_worker_is_no_claim_on_what_was_claimed_without_one(operation: str) -> None:
    job = active(worker_id=None)
    with pytest.raises(ClaimLost):
        give(operation, job.id, Claim(worker_id=WORKER))
    assert read(job.id).state == "active"
    give(operation, job.id, Claim(worker_id=WORKER, run=job.run))
    assert read(job.id).state != "active"


def lapsed() -> Any:
    job = active(queue="a")
    age(job.id, HOUR)
    assert rescue.lapse() == 1
    return job


@pytest.mark.parametrize("operation", OPERATIONS)
def test_after_a_lapse_the_ack_comes_too_late(operation: str) -> None:
    job = lapsed()
    with pytest.raises(Conflict) as caught:
        give(operation, job.id, held(job))
    assert not isinstance(caught.value, ClaimLost)
    assert read(job.id).state == "available"


@together("operation", OPERATIONS, undo=True)
@together("worker_id", [WORKER, "worker-b"], undo=True)
def test_after_a_lapse_another_run_of_it_is_not_touched(operation: str, worker_id: str) -> None:
    job = lapsed()
    claim(read(job.id), worker_id)
    before = snapshot(job.id)
    with pytest.raises(ClaimLost):
        give(operation, job.id, held(job))
    assert snapshot(job.id) == before


@pytest.mark.parametrize("operation", OPERATIONS)
def test_after_a_manual_retry_the_same_worker_and_attempt_are_not_the_same_claim(
    operation: str,
) -> None:
    job = active(queue="a", retry=hourly(1))
    fail.fail(job.id, BOOM)
    retry.retry(job.id)
    again = claim(read(job.id), WORKER)
    assert (again.worker_id, again.attempt, again.run) == (WORKER, 1, 2)
    before = snapshot(job.id)
    with pytest.raises(ClaimLost):
        give(operation, job.id, held(job))
    assert snapshot(job.id) == before
    give(operation, job.id, held(again))


def test_a_batch_completes_what_is_held_and_names_only_that() -> None:
    push_many(6, queue="a")
    runs = fetch.fetch(["a"], count=6, worker_id=WORKER)
    cancel.cancel(runs[0].id)
    jobs().filter(pk=runs[1].id).update(worker_id="worker-b")
    finished = [(job.id, job.run, {"n": n}) for n, job in enumerate(runs)]
    finished[2] = (runs[2].id, 9, None)
    finished.append((uuid7(), 1, None))
    assert ack.ack_batch(WORKER, finished) == {job.id for job in runs[3:]}
    assert [read(job.id).state for job in runs] == [
        "cancelled",
        "active",
        "active",
        *["completed"] * 3,
    ]
    assert [read(job.id).result for job in runs[2:4]] == [None, {"n": 3}]
    assert all(read(job.id).finished_at is not None for job in runs[3:])


def test_an_empty_batch_is_nothing() -> None:
    assert ack.ack_batch(WORKER, []) == set()


def give(operation: str, job_id: Any, claim: Claim) -> None:
    match operation:
        case "ack":
            ack.ack(job_id, claim=claim)
        case "complete":
            ack.complete(job_id, claim=claim)
        case "fail":
            fail.fail(job_id, BOOM, claim=claim)
        case "hold":
            fail.postpone(job_id, BOOM, delay=HOUR, claim=claim)
        case "requeue":
            fail.requeue(job_id, claim=claim)

"""The ledger says what is wrong, and only that."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest

from django_ojs.spec import ids
from example_project.demo import checks, table
from example_project.demo.ledger import build_ledger
from example_project.demo.snapshot import JobRecord, Period, Snapshot
from example_project.demo.stock_import import Imported
from example_project.shop.labels import tracking
from tests.example_project.factories import (
    HANDOVER,
    IMPORTED,
    LABEL,
    NOON,
    PLACED,
    RUN,
    TOTAL,
    good_snapshot,
    job_of,
    paid,
    with_job,
    with_jobs,
    with_order,
)


def problems(snapshot: Snapshot, imported: Imported = IMPORTED) -> str:
    return "\n".join(build_ledger(snapshot, PLACED, RUN, imported).problems)


def test_a_run_that_went_well_has_no_problems() -> None:
    assert problems(good_snapshot()) == ""


def test_a_second_payment_is_found() -> None:
    snapshot = with_order(good_snapshot(), replace(paid("A"), payments=(TOTAL, TOTAL)))
    assert "order is paid too often (A)" in problems(snapshot)


def test_a_missing_payment_is_found() -> None:
    snapshot = with_order(good_snapshot(), replace(paid("B"), payments=()))
    assert "order is not paid (B)" in problems(snapshot)


def test_a_payment_that_is_too_small_is_found() -> None:
    snapshot = with_order(good_snapshot(), replace(paid("B"), payments=(TOTAL - 1,)))
    assert "order is not paid (B)" in problems(snapshot)


def test_a_payment_from_a_declined_card_is_found() -> None:
    snapshot = good_snapshot()
    declined = replace(snapshot.orders[2], payments=(TOTAL,))
    assert "its card was declined (D)" in problems(with_order(snapshot, declined))


def test_a_lost_order_is_found() -> None:
    snapshot = good_snapshot()
    assert "order is missing (B)" in problems(
        replace(snapshot, orders=tuple(o for o in snapshot.orders if o.reference != "B"))
    )


@pytest.mark.parametrize("type_", ["order.reserve", LABEL, "order.invoice"])
def test_a_step_without_its_job_is_found(type_: str) -> None:
    snapshot = good_snapshot()
    missing = job_of(snapshot, "A", type_)
    jobs = [job for job in snapshot.jobs if job.id != missing.id]
    assert "a step has no job, or two (A)" in problems(with_jobs(snapshot, jobs))


@pytest.mark.parametrize(
    ("reference", "type_"), [("A", "order.receipt"), ("A", "order.cancel"), ("D", LABEL)]
)
def test_a_step_with_a_job_too_many_is_found(reference: str, type_: str) -> None:
    snapshot = good_snapshot()
    second = JobRecord(id=ids.uuid7(), type=type_, reference=reference, state="completed")
    found = problems(with_jobs(snapshot, [*snapshot.jobs, second]))
    assert f"a step has no job, or two ({reference})" in found


def test_a_workflow_that_is_not_completed_is_found() -> None:
    snapshot = replace(good_snapshot(), workflows=Counter(completed=2, running=1))
    assert "workflow is not completed (running: 1)" in problems(snapshot)


@pytest.mark.parametrize(("reference", "status"), [("A", "cancelled"), ("D", "reserved")])
def test_a_wrong_cancellation_is_found(reference: str, status: str) -> None:
    snapshot = good_snapshot()
    order = next(order for order in snapshot.orders if order.reference == reference)
    found = problems(with_order(snapshot, replace(order, status=status)))
    assert f"wrongly not cancelled ({reference})" in found


@pytest.mark.parametrize("left", [-1, 1])
def test_a_delivery_or_an_order_that_is_not_counted_once_is_found(left: int) -> None:
    snapshot = good_snapshot()
    snapshot.stock["Sea salt flakes 250 g"] += left
    assert "not counted once (Sea salt flakes 250 g)" in problems(snapshot)


@pytest.mark.parametrize("alerted", [Counter(), Counter({1: 2}), Counter({1: 1, 2: 1})])
def test_a_customer_who_was_not_alerted_once_is_found(alerted: Counter[int]) -> None:
    snapshot = replace(good_snapshot(), alerts=frozenset({1}), alerted=alerted)
    assert "a customer was not alerted, or twice" in problems(snapshot)
    assert problems(replace(snapshot, alerted=Counter({1: 1}))) == ""


@pytest.mark.parametrize("continued_after", [0, 480])
def test_an_import_that_did_not_continue_at_its_checkpoint_is_found(continued_after: int) -> None:
    imported = Imported(killed_at=500, continued_after=continued_after)
    assert "did not continue at its checkpoint" in problems(good_snapshot(), imported)


def test_an_import_whose_worker_was_not_killed_starts_at_the_beginning() -> None:
    assert problems(good_snapshot(), Imported(killed_at=None, continued_after=0)) == ""


def test_an_order_that_came_back_from_its_rollback_is_found() -> None:
    snapshot = good_snapshot()
    assert "though it rolled back (R)" in problems(
        replace(snapshot, orders=(*snapshot.orders, paid("R")))
    )


def test_a_job_of_an_order_that_rolled_back_is_found() -> None:
    snapshot = good_snapshot()
    rolled_back = JobRecord(id=ids.uuid7(), type="order.receipt", reference="R", state="completed")
    assert "job of an order that rolled back (R)" in problems(
        with_jobs(snapshot, [*snapshot.jobs, rolled_back])
    )


@pytest.mark.parametrize("state", ["available", "active", "retryable", "scheduled", "pending"])
def test_a_job_that_is_left_is_found(state: str) -> None:
    snapshot = good_snapshot()
    left = replace(snapshot.jobs[0], state=state)
    assert "job is not finished (A)" in problems(with_jobs(snapshot, [left, *snapshot.jobs[1:]]))


def test_a_job_that_was_given_up_without_need_is_found() -> None:
    snapshot = good_snapshot()
    dead = replace(snapshot.jobs[1], state="discarded")
    jobs = [snapshot.jobs[0], dead, *snapshot.jobs[2:]]
    assert "job was discarded wrongly, or wrongly not discarded (A)" in problems(
        with_jobs(snapshot, jobs)
    )


def test_a_declined_charge_that_completed_is_found() -> None:
    snapshot = good_snapshot()
    jobs = [replace(job, state="completed") for job in snapshot.jobs]
    assert "job was discarded wrongly, or wrongly not discarded (D)" in problems(
        with_jobs(snapshot, jobs)
    )


def test_a_missing_email_is_found() -> None:
    assert "and was not sent (B)" in problems(replace(good_snapshot(), emails=frozenset({"A"})))


def test_a_missing_invoice_is_found() -> None:
    snapshot = with_order(good_snapshot(), replace(paid("A"), invoices=0))
    assert "order lacks its invoice, or has one and was not sent (A)" in problems(snapshot)


def test_a_document_of_a_cancelled_order_is_found() -> None:
    snapshot = good_snapshot()
    found = problems(replace(snapshot, pdfs=snapshot.pdfs | {"D"}))
    assert "order lacks its invoice, or has one and was not sent (D)" in found


def test_a_wrong_label_is_found() -> None:
    snapshot = good_snapshot()
    wrong = replace(job_of(snapshot, "A", LABEL), result={"tracking": "CK1"})
    assert "order lacks a label, or has a wrong one (A)" in problems(with_job(snapshot, wrong))


@pytest.mark.parametrize(
    "result",
    [
        {"parcels": []},
        {"parcels": [tracking("A", 2), tracking("A", 1)]},
        {"parcels": [tracking("A", 1), tracking("A", 2)], "collection": "PU1"},
    ],
)
def test_a_wrong_handover_is_found(result: dict[str, object]) -> None:
    snapshot = good_snapshot()
    wrong = replace(job_of(snapshot, "A", HANDOVER), result=result)
    assert "wrong or in another order (A)" in problems(with_job(snapshot, wrong))


def requests(*milliseconds: tuple[int, int]) -> tuple[Period, ...]:
    """Build requests to the carrier: when each began and ended, after noon."""
    return tuple(
        Period(
            started_at=NOON + timedelta(milliseconds=start),
            ended_at=NOON + timedelta(milliseconds=end),
        )
        for start, end in milliseconds
    )


def test_requests_are_at_the_same_time_until_one_ends() -> None:
    assert checks.most_at_once(requests((0, 5), (1, 6), (5, 9), (6, 7))) == 2
    assert checks.most_at_once(requests((0, 5), (1, 6), (4, 9))) == 3


def test_a_second_may_begin_at_any_time() -> None:
    starts = [900, 950, 1_100, 1_899, 1_900]
    assert checks.most_in_a_second(requests(*((at, at) for at in starts))) == 4


@pytest.mark.parametrize(
    ("number", "apart", "problem"),
    [
        (8, 0, ""),
        (9, 0, "most requests at the same time: 9, which is more than 8"),
        (100, 10, ""),
        (101, 9, "most requests in any one second: 101, which is more than 100"),
    ],
)
def test_more_requests_than_the_carrier_allows_are_found(
    number: int, apart: int, problem: str
) -> None:
    made = requests(*((n * apart, n * apart + 5) for n in range(number)))
    assert problems(replace(good_snapshot(), carrier=made)) == problem


@pytest.mark.parametrize("type_", [LABEL, "order.reserve"])
def test_a_job_that_ran_again_needs_a_reason(type_: str) -> None:
    snapshot = good_snapshot()
    again = replace(job_of(snapshot, "B", type_), spent=2)
    snapshot = with_job(snapshot, again)
    assert "job was run again without a reason (B)" in problems(snapshot)
    assert problems(replace(snapshot, explained=Counter([again.id]))) == ""


def test_an_email_sent_again_needs_a_run_that_ended_before_its_time() -> None:
    snapshot = with_order(good_snapshot(), replace(paid("A"), receipts=2))
    assert "written again without a reason (A)" in problems(snapshot)

    job = job_of(snapshot, "A", "order.receipt")
    assert problems(replace(snapshot, explained=Counter([job.id]))) == ""


def test_the_reason_of_another_job_explains_nothing() -> None:
    snapshot = with_order(good_snapshot(), replace(paid("A"), invoices=2))
    charge = job_of(snapshot, "A", "order.charge")
    assert "without a reason (A)" in problems(replace(snapshot, explained=Counter([charge.id])))


def test_the_table_is_aligned_and_crosses_what_is_wrong() -> None:
    snapshot = with_order(good_snapshot(), replace(paid("A"), payments=(TOTAL, TOTAL)))
    lines = [
        line
        for line in table.lines(build_ledger(snapshot, PLACED, RUN, IMPORTED))
        if line.startswith("  ")
    ]
    assert [line for line in lines if line.endswith("✗")] == [
        line for line in lines if "orders paid twice" in line
    ]
    assert len({len(line) for line in lines if line[-1] in "✓✗"}) == 1

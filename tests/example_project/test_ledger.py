"""The ledger says what is wrong, and only that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from django_ojs.spec import ids
from example_project.demo import table
from example_project.demo.ledger import build_ledger
from example_project.demo.snapshot import JobRecord, Snapshot
from tests.example_project.factories import (
    LABEL,
    PLACED,
    RUN,
    TOTAL,
    good_snapshot,
    paid,
    with_jobs,
    with_order,
)


def problems(snapshot: Snapshot) -> str:
    return "\n".join(build_ledger(snapshot, PLACED, RUN).problems)


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


def test_a_lost_job_is_found() -> None:
    snapshot = good_snapshot()
    assert "order lacks a job (A)" in problems(with_jobs(snapshot, snapshot.jobs[1:]))


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
    assert "order lacks its e-mail (B)" in problems(
        replace(good_snapshot(), emails=frozenset({"A", "D"}))
    )


def test_a_missing_invoice_is_found() -> None:
    snapshot = with_order(good_snapshot(), replace(paid("A"), invoices=0))
    assert "order lacks its invoice (A)" in problems(snapshot)


def label_of(snapshot: Snapshot, reference: str) -> JobRecord:
    return next(j for j in snapshot.jobs if (j.type, j.reference) == (LABEL, reference))


def test_a_wrong_label_is_found() -> None:
    snapshot = good_snapshot()
    wrong = replace(label_of(snapshot, "A"), result={"tracking": "CK1", "by": "node"})
    jobs = [wrong if job.id == wrong.id else job for job in snapshot.jobs]
    assert "order lacks its label (A)" in problems(with_jobs(snapshot, jobs))


def test_a_label_made_twice_needs_a_dead_worker_to_explain_it() -> None:
    snapshot = good_snapshot()
    again = replace(label_of(snapshot, "B"), spent=2)
    snapshot = with_jobs(snapshot, [again if job.id == again.id else job for job in snapshot.jobs])
    assert "label was made again without a reason (B)" in problems(snapshot)
    assert problems(replace(snapshot, recovered=frozenset({again.id}))) == ""


def test_an_email_sent_again_needs_a_dead_worker_to_explain_it() -> None:
    snapshot = with_order(good_snapshot(), replace(paid("A"), receipts=2))
    assert "written again without a reason (A)" in problems(snapshot)

    job = next(j for j in snapshot.jobs if j.reference == "A" and j.type == "order.receipt")
    assert problems(replace(snapshot, recovered=frozenset({job.id}))) == ""


def test_the_rescue_of_another_job_explains_nothing() -> None:
    snapshot = with_order(good_snapshot(), replace(paid("A"), invoices=2))
    charge = next(j for j in snapshot.jobs if j.reference == "A" and j.type == "order.charge")
    assert "without a reason (A)" in problems(replace(snapshot, recovered=frozenset({charge.id})))


def test_the_table_is_aligned_and_crosses_what_is_wrong() -> None:
    snapshot = with_order(good_snapshot(), replace(paid("A"), payments=(TOTAL, TOTAL)))
    lines = [
        line for line in table.lines(build_ledger(snapshot, PLACED, RUN)) if line.startswith("  ")
    ]
    assert [line for line in lines if line.endswith("✗")] == [
        line for line in lines if "orders paid twice" in line
    ]
    assert len({len(line) for line in lines if line[-1] in "✓✗"}) == 1

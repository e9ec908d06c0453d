"""The ledger says what is wrong, and only that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from django_ojs.spec import ids
from example_project.demo import table
from example_project.demo.facts import Facts, JobFact
from example_project.demo.ledger import draw_up
from tests.example_project.factories import (
    LABEL,
    PLACED,
    RUN,
    TOTAL,
    good_facts,
    paid,
    with_jobs,
    with_order,
)


def problems(facts: Facts) -> str:
    return "\n".join(draw_up(facts, PLACED, RUN).problems)


def test_a_run_that_went_well_has_no_problems() -> None:
    assert problems(good_facts()) == ""


def test_a_second_payment_is_found() -> None:
    facts = with_order(good_facts(), replace(paid("A"), payments=(TOTAL, TOTAL)))
    assert "order is paid too often (A)" in problems(facts)


def test_a_missing_payment_is_found() -> None:
    facts = with_order(good_facts(), replace(paid("B"), payments=()))
    assert "order is not paid (B)" in problems(facts)


def test_a_payment_that_is_too_small_is_found() -> None:
    facts = with_order(good_facts(), replace(paid("B"), payments=(TOTAL - 1,)))
    assert "order is not paid (B)" in problems(facts)


def test_a_payment_from_a_declined_card_is_found() -> None:
    facts = good_facts()
    declined = replace(facts.orders[2], payments=(TOTAL,))
    assert "its card was declined (D)" in problems(with_order(facts, declined))


def test_a_lost_order_is_found() -> None:
    facts = good_facts()
    assert "order is missing (B)" in problems(
        replace(facts, orders=tuple(o for o in facts.orders if o.reference != "B"))
    )


def test_a_lost_job_is_found() -> None:
    facts = good_facts()
    assert "order lacks a job (A)" in problems(with_jobs(facts, facts.jobs[1:]))


def test_an_order_that_came_back_from_its_rollback_is_found() -> None:
    facts = good_facts()
    assert "though it rolled back (R)" in problems(
        replace(facts, orders=(*facts.orders, paid("R")))
    )


def test_a_job_of_an_order_that_rolled_back_is_found() -> None:
    facts = good_facts()
    ghost = JobFact(id=ids.uuid7(), type="order.receipt", reference="R", state="completed")
    assert "job of an order that rolled back (R)" in problems(
        with_jobs(facts, [*facts.jobs, ghost])
    )


@pytest.mark.parametrize("state", ["available", "active", "retryable", "scheduled", "pending"])
def test_a_job_that_is_left_is_found(state: str) -> None:
    facts = good_facts()
    left = replace(facts.jobs[0], state=state)
    assert "job is not finished (A)" in problems(with_jobs(facts, [left, *facts.jobs[1:]]))


def test_a_job_that_was_given_up_without_need_is_found() -> None:
    facts = good_facts()
    dead = replace(facts.jobs[1], state="discarded")
    jobs = [facts.jobs[0], dead, *facts.jobs[2:]]
    assert "job was given up wrongly, or wrongly not (A)" in problems(with_jobs(facts, jobs))


def test_a_declined_charge_that_completed_is_found() -> None:
    facts = good_facts()
    jobs = [replace(job, state="completed") for job in facts.jobs]
    assert "job was given up wrongly, or wrongly not (D)" in problems(with_jobs(facts, jobs))


def test_a_missing_email_is_found() -> None:
    assert "order lacks its e-mail (B)" in problems(
        replace(good_facts(), emails=frozenset({"A", "D"}))
    )


def test_a_missing_invoice_is_found() -> None:
    facts = with_order(good_facts(), replace(paid("A"), invoices=0))
    assert "order lacks its invoice (A)" in problems(facts)


def label_of(facts: Facts, reference: str) -> JobFact:
    return next(j for j in facts.jobs if (j.type, j.reference) == (LABEL, reference))


def test_a_wrong_label_is_found() -> None:
    facts = good_facts()
    wrong = replace(label_of(facts, "A"), result={"tracking": "CK1", "by": "node"})
    jobs = [wrong if job.id == wrong.id else job for job in facts.jobs]
    assert "order lacks its label (A)" in problems(with_jobs(facts, jobs))


def test_a_label_made_twice_needs_a_dead_worker_to_explain_it() -> None:
    facts = good_facts()
    again = replace(label_of(facts, "B"), spent=2)
    facts = with_jobs(facts, [again if job.id == again.id else job for job in facts.jobs])
    assert "label was made again without a reason (B)" in problems(facts)
    assert problems(replace(facts, rescued=frozenset({again.id}))) == ""


def test_an_email_sent_again_needs_a_dead_worker_to_explain_it() -> None:
    facts = with_order(good_facts(), replace(paid("A"), receipts=2))
    assert "written again without a reason (A)" in problems(facts)

    job = next(j for j in facts.jobs if j.reference == "A" and j.type == "order.receipt")
    assert problems(replace(facts, rescued=frozenset({job.id}))) == ""


def test_the_rescue_of_another_job_explains_nothing() -> None:
    facts = with_order(good_facts(), replace(paid("A"), invoices=2))
    charge = next(j for j in facts.jobs if j.reference == "A" and j.type == "order.charge")
    assert "without a reason (A)" in problems(replace(facts, rescued=frozenset({charge.id})))


def test_the_table_is_aligned_and_crosses_what_is_wrong() -> None:
    facts = with_order(good_facts(), replace(paid("A"), payments=(TOTAL, TOTAL)))
    lines = [line for line in table.lines(draw_up(facts, PLACED, RUN)) if line.startswith("  ")]
    assert [line for line in lines if line.endswith("✗")] == [
        line for line in lines if "orders paid twice" in line
    ]
    assert len({len(line) for line in lines if line[-1] in "✓✗"}) == 1

"""The ledger says what is wrong, and only that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from django_ojs.spec import ids
from example_project.demo import checks, table
from example_project.demo.ledger import build_ledger
from example_project.demo.snapshot import JobRecord, Period, Snapshot
from example_project.demo.stock_import import Imported
from example_project.shop.labels import tracking
from tests.cases import together
from tests.example_project.factories import (
    HANDOVER,
    IMPORTED,
    LABEL,
    NOON,
    PLACED,
    RUN,
    TOTAL,
    OrderRecordFactory,
    good_snapshot,
    job_of,
    with_job,
    with_jobs,
    with_order,
)


def problems(snapshot: Snapshot, imported: Imported = IMPORTED) -> str:
    return "\n".join(build_ledger(snapshot, PLACED, RUN, imported).problems)


def test_a_run_that_went_well_has_no_problems() -> None:
    assert problems(good_snapshot()) == ""


def an_order(reference: str, **changes: Any) -> Callable[[Snapshot], Snapshot]:
    """Change one order of the run."""

    def change(snapshot: Snapshot) -> Snapshot:
        order = next(order for order in snapshot.orders if order.reference == reference)
        return with_order(snapshot, replace(order, **changes))

    return change


def a_job_more(type_: str, reference: str) -> Callable[[Snapshot], Snapshot]:
    """Add a job that completed."""
    more = JobRecord(id=ids.uuid7(), type=type_, reference=reference, state="completed")
    return lambda snapshot: with_jobs(snapshot, [*snapshot.jobs, more])


def a_job_less(type_: str) -> Callable[[Snapshot], Snapshot]:
    """Take a job of the order A away."""

    def change(snapshot: Snapshot) -> Snapshot:
        missing = job_of(snapshot, "A", type_)
        return with_jobs(snapshot, [job for job in snapshot.jobs if job.id != missing.id])

    return change


def the_result(type_: str, **result: Any) -> Callable[[Snapshot], Snapshot]:
    """Have a job of the order A return something else."""
    return lambda found: with_job(found, replace(job_of(found, "A", type_), result=result))


def the_job(number: int, state: str) -> Callable[[Snapshot], Snapshot]:
    """Have a job of the order A be in another state."""

    def change(snapshot: Snapshot) -> Snapshot:
        jobs = [*snapshot.jobs]
        jobs[number] = replace(jobs[number], state=state)
        return with_jobs(snapshot, jobs)

    return change


STEPS = "a step has no job, or two"
GIVEN_UP = "job was discarded wrongly, or wrongly not discarded"
DOCUMENTS = "order lacks its invoice, or has one and was not sent"


@together(
    ("change", "problem"),
    [
        (an_order("A", payments=(TOTAL, TOTAL)), "order is paid too often (A)"),
        (an_order("B", payments=()), "order is not paid (B)"),
        (an_order("B", payments=(TOTAL - 1,)), "order is not paid (B)"),
        (an_order("D", payments=(TOTAL,)), "its card was declined (D)"),
        (an_order("A", status="cancelled"), "wrongly not cancelled (A)"),
        (an_order("D", status="reserved"), "wrongly not cancelled (D)"),
        (
            lambda found: replace(
                found, orders=tuple(o for o in found.orders if o.reference != "B")
            ),
            "order is missing (B)",
        ),
        (
            lambda found: replace(found, orders=(*found.orders, OrderRecordFactory(reference="R"))),
            "though it rolled back (R)",
        ),
        (a_job_more("order.receipt", "R"), "job of an order that rolled back (R)"),
        (a_job_less("order.reserve"), f"{STEPS} (A)"),
        (a_job_less(LABEL), f"{STEPS} (A)"),
        (a_job_less("order.invoice"), f"{STEPS} (A)"),
        (a_job_more("order.receipt", "A"), f"{STEPS} (A)"),
        (a_job_more("order.cancel", "A"), f"{STEPS} (A)"),
        (a_job_more(LABEL, "D"), f"{STEPS} (D)"),
        (
            lambda found: replace(found, workflows=Counter(completed=2, running=1)),
            "workflow is not completed (running: 1)",
        ),
        *(
            (the_job(0, state), "job is not finished (A)")
            for state in ("available", "active", "retryable", "scheduled", "pending")
        ),
        (the_job(1, "discarded"), f"{GIVEN_UP} (A)"),
        (
            lambda found: with_jobs(found, [replace(j, state="completed") for j in found.jobs]),
            f"{GIVEN_UP} (D)",
        ),
        (lambda found: replace(found, emails=frozenset({"A"})), "and was not sent (B)"),
        (an_order("A", invoices=0), f"{DOCUMENTS} (A)"),
        (lambda found: replace(found, pdfs=found.pdfs | {"D"}), f"{DOCUMENTS} (D)"),
        (the_result(LABEL, tracking="CK1"), "order lacks a label, or has a wrong one (A)"),
        (the_result(HANDOVER, parcels=[]), "wrong or in another order (A)"),
        (
            the_result(HANDOVER, parcels=[tracking("A", 2), tracking("A", 1)]),
            "wrong or in another order (A)",
        ),
        (
            the_result(HANDOVER, parcels=[tracking("A", 1), tracking("A", 2)], collection="PU1"),
            "wrong or in another order (A)",
        ),
    ],
)
def test_what_went_wrong_is_found(change: Callable[[Snapshot], Snapshot], problem: str) -> None:
    assert problem in problems(change(good_snapshot()))


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
    snapshot = with_order(good_snapshot(), OrderRecordFactory(receipts=2))
    assert "written again without a reason (A)" in problems(snapshot)

    job = job_of(snapshot, "A", "order.receipt")
    assert problems(replace(snapshot, explained=Counter([job.id]))) == ""


def test_the_reason_of_another_job_explains_nothing() -> None:
    snapshot = with_order(good_snapshot(), OrderRecordFactory(invoices=2))
    charge = job_of(snapshot, "A", "order.charge")
    assert "without a reason (A)" in problems(replace(snapshot, explained=Counter([charge.id])))


def test_the_table_is_aligned_and_crosses_what_is_wrong() -> None:
    snapshot = with_order(good_snapshot(), OrderRecordFactory(payments=(TOTAL, TOTAL)))
    lines = [
        line
        for line in table.lines(build_ledger(snapshot, PLACED, RUN, IMPORTED))
        if line.startswith("  ")
    ]
    assert [line for line in lines if line.endswith("✗")] == [
        line for line in lines if "orders paid twice" in line
    ]
    assert len({len(line) for line in lines if line[-1] in "✓✗"}) == 1


def an_attempt_of_each_kind() -> Snapshot:
    snapshot = good_snapshot()
    again = replace(job_of(snapshot, "B", LABEL), attempt=4, spent=3, returned=1)
    return replace(with_job(snapshot, again), retries=1, taken_back=1)


def test_the_attempts_are_those_of_its_lines() -> None:
    snapshot = an_attempt_of_each_kind()
    (entries,) = (
        entries
        for title, entries in build_ledger(snapshot, PLACED, RUN, IMPORTED).sections
        if any(entry.label == "attempts" for entry in entries)
    )
    values = {entry.label: int(entry.value) for entry in entries if "attempt" in entry.label}
    parts = {
        entry.label: int(entry.value) for entry in entries if entry.label.startswith("of these")
    }
    assert values["attempts"] == sum(parts.values()) == len(snapshot.jobs) + 3
    assert parts == {
        "of these, the first of a job": len(snapshot.jobs),
        "of these, retries after a failure": 1,
        "of these, repeated after a dead worker": 1,
        "of these, returned by the worker": 1,
        "of these, none of the above": 0,
    }


@pytest.mark.parametrize(("wrong", "by"), [({"retries": 0}, "+1"), ({"taken_back": 2}, "-1")])
def test_attempts_that_are_not_the_sum_of_their_lines_are_a_problem(
    wrong: dict[str, int], by: str
) -> None:
    snapshot = replace(an_attempt_of_each_kind(), **wrong)  # type: ignore[arg-type]  # numbers
    assert f"the attempts are not the sum of their lines ({by})" in problems(snapshot)

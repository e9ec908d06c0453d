"""Values for the tests of the shop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

from django_ojs.spec import ids
from example_project.demo.cleanup import JOB_TYPES
from example_project.demo.monitor import Run
from example_project.demo.placement import Placement
from example_project.demo.snapshot import JobRecord, OrderRecord, Snapshot
from example_project.shop.cards import DECLINED
from example_project.shop.catalogue import Basket, Line
from example_project.shop.labels import tracking

LABEL = "order.label"
TOTAL = Decimal("12.50")
PLACED = Placement(committed=frozenset({"A", "B", "D"}), rolled_back=frozenset({"R"}))
RUN = Run(seconds=2.0, killed=None)


def basket(reference: str = "T-1", *, product: str = "Olive wood spoon", card: str = "") -> Basket:
    """Build a basket of two products."""
    return Basket(
        reference=reference,
        placed_at=datetime(2026, 3, 1, 12, 0, tzinfo=UTC),
        customer="Zażółć Ωμέγα Đặng",
        email="zazolc@example.org",
        card=card or "card_ok",
        lines=(
            Line(product=product, quantity=3, unit_price=Decimal("6.40")),
            Line(product="Enamel mug", quantity=1, unit_price=Decimal("9.75")),
        ),
    )


def paid(reference: str) -> OrderRecord:
    """Build an order for which everything went well."""
    return OrderRecord(
        reference=reference, card="card_ok", total=TOTAL, payments=(TOTAL,), receipts=1, invoices=1
    )


def good_snapshot() -> Snapshot:
    """Build the snapshot of a run in which A and B were paid and the card of D was declined."""
    declined = replace(paid("D"), card=DECLINED, payments=())
    jobs = [
        JobRecord(
            id=ids.uuid7(),
            type=type_,
            reference=reference,
            state="completed",
            result={"tracking": tracking(reference), "by": "node"} if type_ == LABEL else {},
        )
        for reference in ("A", "B", "D")
        for type_ in JOB_TYPES
    ]
    charge_of_d = next(n for n, job in enumerate(jobs) if job.reference == "D")
    jobs[charge_of_d] = replace(jobs[charge_of_d], state="discarded", dead_letter=True)
    references = frozenset({"A", "B", "D"})
    return Snapshot(
        orders=(paid("A"), paid("B"), declined),
        jobs=tuple(jobs),
        emails=references,
        pdfs=references,
    )


def with_order(snapshot: Snapshot, order: OrderRecord) -> Snapshot:
    """Replace the order of the same reference."""
    orders = tuple(order if old.reference == order.reference else old for old in snapshot.orders)
    return replace(snapshot, orders=orders)


def with_jobs(snapshot: Snapshot, jobs: Sequence[JobRecord]) -> Snapshot:
    """Replace the jobs."""
    return replace(snapshot, jobs=tuple(jobs))

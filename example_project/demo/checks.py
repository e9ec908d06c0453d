"""The checked promises: each function returns the references of the orders that break it."""

from collections import Counter
from collections.abc import Callable, Iterable

from django_ojs.spec.states import TERMINAL, State
from example_project.demo.cleanup import JOB_TYPES
from example_project.demo.placement import Placement
from example_project.demo.snapshot import JobRecord, OrderRecord, Snapshot
from example_project.shop.cards import NEVER_PAYS
from example_project.shop.labels import tracking

_CHARGE, _RECEIPT, _INVOICE, _LABEL = JOB_TYPES


def chargeable(order: OrderRecord) -> bool:
    """Whether any attempt to charge the order's card can succeed."""
    return order.card not in NEVER_PAYS


def lost_orders(snapshot: Snapshot, placed: Placement) -> list[str]:
    """Orders that were committed and are not in the database."""
    return sorted(placed.committed - {order.reference for order in snapshot.orders})


def rolled_back_orders_stored(snapshot: Snapshot, placed: Placement) -> list[str]:
    """Orders in the database that were rolled back."""
    return sorted({order.reference for order in snapshot.orders} - placed.committed)


def rolled_back_jobs_stored(snapshot: Snapshot, placed: Placement) -> list[str]:
    """Jobs of orders that were rolled back."""
    return sorted(job.reference for job in snapshot.jobs if job.reference not in placed.committed)


def lost_jobs(snapshot: Snapshot, placed: Placement) -> list[str]:
    """Orders without exactly one job of each type."""
    counted = Counter((job.reference, job.type) for job in snapshot.jobs)
    return sorted(
        reference
        for reference in placed.committed
        if any(counted[reference, type_] != 1 for type_ in JOB_TYPES)
    )


def jobs_left(snapshot: Snapshot) -> list[str]:
    """Jobs that are not finished."""
    return sorted(job.reference for job in snapshot.jobs if job.state not in TERMINAL)


def unpaid(snapshot: Snapshot) -> list[str]:
    """Orders with a chargeable card whose payments are less than the total."""
    return [o.reference for o in snapshot.orders if chargeable(o) and sum(o.payments) < o.total]


def paid_twice(snapshot: Snapshot) -> list[str]:
    """Orders with more than one payment, or with payments above the total."""
    return [
        o.reference for o in snapshot.orders if len(o.payments) > 1 or sum(o.payments) > o.total
    ]


def paid_despite_declined_card(snapshot: Snapshot) -> list[str]:
    """Orders with a payment although their card never pays."""
    return [o.reference for o in snapshot.orders if not chargeable(o) and o.payments]


def dead_letters(snapshot: Snapshot) -> list[JobRecord]:
    """Jobs that were discarded."""
    return [job for job in snapshot.jobs if job.state == State.DISCARDED]


def wrongly_discarded(snapshot: Snapshot) -> list[str]:
    """Orders whose charge should have been discarded and was not, or the reverse."""
    unpayable = {o.reference for o in snapshot.orders if not chargeable(o)}
    expected = {(reference, _CHARGE) for reference in unpayable}
    found = {(job.reference, job.type) for job in dead_letters(snapshot)}
    return sorted(reference for reference, _ in expected ^ found)


def without_email(snapshot: Snapshot) -> list[str]:
    """Orders without their e-mail, and e-mails without an order."""
    return sorted({o.reference for o in snapshot.orders if o.receipts} ^ _all(snapshot)) or sorted(
        snapshot.emails ^ _all(snapshot)
    )


def without_pdf(snapshot: Snapshot) -> list[str]:
    """Orders without their invoice, and invoices without an order."""
    return sorted({o.reference for o in snapshot.orders if o.invoices} ^ _all(snapshot)) or sorted(
        snapshot.pdfs ^ _all(snapshot)
    )


def emails_again(snapshot: Snapshot) -> list[str]:
    """Orders whose e-mail was written more than once."""
    return [o.reference for o in snapshot.orders if o.receipts > 1]


def pdfs_again(snapshot: Snapshot) -> list[str]:
    """Orders whose invoice was drawn more than once."""
    return [o.reference for o in snapshot.orders if o.invoices > 1]


def again_without_reason(snapshot: Snapshot) -> list[str]:
    """Documents written again although their job was not recovered from a dead worker."""
    return _unexplained(snapshot, emails_again, _RECEIPT) + _unexplained(
        snapshot, pdfs_again, _INVOICE
    )


def labels(snapshot: Snapshot) -> list[JobRecord]:
    """The completed label jobs."""
    return [job for job in snapshot.jobs if job.type == _LABEL and job.state == State.COMPLETED]


def without_label(snapshot: Snapshot) -> list[str]:
    """Orders without their parcel's number, or with a wrong one."""
    right = {
        job.reference
        for job in labels(snapshot)
        if job.result.get("tracking") == tracking(job.reference)
    }
    return sorted(right ^ _all(snapshot))


def labels_again(snapshot: Snapshot) -> list[str]:
    """Orders whose label took more than one run although no worker died over it."""
    return [
        job.reference
        for job in labels(snapshot)
        if job.spent > 1 and job.id not in snapshot.recovered
    ]


def _unexplained(
    snapshot: Snapshot, again: Callable[[Snapshot], Iterable[str]], type_: str
) -> list[str]:
    recovered = {
        job.reference for job in snapshot.jobs if job.type == type_ and job.id in snapshot.recovered
    }
    return [reference for reference in again(snapshot) if reference not in recovered]


def _all(snapshot: Snapshot) -> set[str]:
    return {order.reference for order in snapshot.orders}

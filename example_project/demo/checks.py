"""The checked promises: each function returns the references of the orders that break it."""

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import timedelta

from django_ojs.spec.states import TERMINAL, State
from example_project.demo.placement import Placement
from example_project.demo.snapshot import JobRecord, OrderRecord, Period, Snapshot
from example_project.shop.cards import NEVER_PAYS
from example_project.shop.labels import collection, tracking
from example_project.shop.models import Status

_CHARGE, _LABEL, _HANDOVER = "order.charge", "order.label", "order.handover"
_RECEIPT, _INVOICE = "order.receipt", "order.invoice"
_SECOND = timedelta(seconds=1)


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


def not_completed(snapshot: Snapshot) -> list[str]:
    """States other than completed in which workflows are, each with their number."""
    return [
        f"{state}: {number}"
        for state, number in sorted(snapshot.workflows.items())
        if state != State.COMPLETED and number
    ]


def steps(order: OrderRecord) -> Counter[str]:
    """Return how many jobs of each type the workflow of an order needs."""
    if not chargeable(order):
        return Counter(["order.reserve", _CHARGE, "order.cancel"])
    once = Counter(["order.reserve", _CHARGE, _HANDOVER, _RECEIPT, _INVOICE])
    return once + Counter({_LABEL: order.parcels})


def wrong_steps(snapshot: Snapshot) -> list[str]:
    """Orders with a step that has no job, with more jobs than one, or with one too many."""
    counted = Counter((job.reference, job.type) for job in snapshot.jobs)
    wanted = Counter(
        {
            (order.reference, type_): number
            for order in snapshot.orders
            for type_, number in steps(order).items()
        }
    )
    return sorted({reference for reference, _ in (wanted - counted) + (counted - wanted)})


def jobs_left(snapshot: Snapshot) -> list[str]:
    """Jobs that are not finished."""
    return sorted(job.reference for job in snapshot.jobs if job.state not in TERMINAL)


def again_without_reason(snapshot: Snapshot) -> list[str]:
    """Jobs with more attempts than a failure or a dead worker explains."""
    return [job.reference for job in snapshot.jobs if job.spent > 1 + snapshot.explained[job.id]]


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


def not_cancelled(snapshot: Snapshot) -> list[str]:
    """Orders that cannot be paid and were not cancelled, or the reverse."""
    return [o.reference for o in snapshot.orders if (o.status == Status.CANCELLED) == chargeable(o)]


def wrong_stock(snapshot: Snapshot, delivered: Counter[str]) -> list[str]:
    """Products of which the stock is not what was delivered without what was sold."""
    sold, left = snapshot.reserved, snapshot.stock
    return sorted(
        product
        for product in {*delivered, *sold, *left}
        if delivered[product] != sold[product] + left[product]
    )


def not_alerted_once(snapshot: Snapshot) -> list[str]:
    """Customers who wait for an arrival and were not alerted by exactly one job."""
    wanted, found = Counter(snapshot.alerts), snapshot.alerted
    return [str(key) for key in sorted({*wanted, *found}) if found[key] != wanted[key]]


def dead_letters(snapshot: Snapshot) -> list[JobRecord]:
    """Jobs that were discarded."""
    return [job for job in snapshot.jobs if job.state == State.DISCARDED]


def wrongly_discarded(snapshot: Snapshot) -> list[str]:
    """Orders whose charge should have been discarded and was not, or the reverse."""
    unpayable = {o.reference for o in snapshot.orders if not chargeable(o)}
    expected = {(reference, _CHARGE) for reference in unpayable}
    found = {(job.reference, job.type) for job in dead_letters(snapshot)}
    return sorted(reference for reference, _ in expected ^ found)


def labels(snapshot: Snapshot) -> list[JobRecord]:
    """The completed label jobs."""
    return _completed(snapshot, _LABEL)


def wrong_labels(snapshot: Snapshot) -> list[str]:
    """Orders with a parcel without its number, or with a wrong one."""
    wanted = Counter(
        (order.reference, number) for order in _sent(snapshot) for number in _numbers(order)
    )
    found = Counter((job.reference, str(job.result.get("tracking"))) for job in labels(snapshot))
    return sorted({reference for reference, _ in (wanted - found) + (found - wanted)})


def most_at_once(periods: Iterable[Period]) -> int:
    """Return the largest number of periods that contain the same moment."""
    changes = [(period.ended_at, -1) for period in periods]
    changes += [(period.started_at, 1) for period in periods]
    number = most = 0
    for _, change in sorted(changes):
        number += change
        most = max(most, number)
    return most


def most_in_a_second(periods: Iterable[Period]) -> int:
    """Return the largest number of starts within one second, wherever it begins."""
    starts = sorted(period.started_at for period in periods)
    most = first = 0
    for number, start in enumerate(starts, 1):
        while start - starts[first] >= _SECOND:
            first += 1
        most = max(most, number - first)
    return most


def handovers(snapshot: Snapshot) -> list[JobRecord]:
    """The completed handovers to the carrier."""
    return _completed(snapshot, _HANDOVER)


def wrong_handovers(snapshot: Snapshot) -> list[str]:
    """Orders whose parcels, in their order, were not handed over under the right number."""
    wanted = {order.reference: _numbers(order) for order in _sent(snapshot)}
    found = {job.reference: job.result.get("parcels") for job in handovers(snapshot)}
    wrong = {
        job.reference
        for job in handovers(snapshot)
        if job.result.get("collection") != collection(job.result.get("parcels") or [])
    }
    return sorted(wrong | {key for key in {*wanted, *found} if wanted.get(key) != found.get(key)})


def wrong_emails(snapshot: Snapshot) -> list[str]:
    """Orders that were sent without an e-mail, and the reverse."""
    sent = {order.reference for order in _sent(snapshot)}
    return sorted({o.reference for o in snapshot.orders if o.receipts} ^ sent) or sorted(
        snapshot.emails ^ sent
    )


def wrong_pdfs(snapshot: Snapshot) -> list[str]:
    """Orders that were sent without an invoice, and the reverse."""
    sent = {order.reference for order in _sent(snapshot)}
    return sorted({o.reference for o in snapshot.orders if o.invoices} ^ sent) or sorted(
        snapshot.pdfs ^ sent
    )


def emails_again(snapshot: Snapshot) -> list[str]:
    """Orders whose e-mail was written more than once."""
    return [o.reference for o in snapshot.orders if o.receipts > 1]


def pdfs_again(snapshot: Snapshot) -> list[str]:
    """Orders whose invoice was drawn more than once."""
    return [o.reference for o in snapshot.orders if o.invoices > 1]


def documents_again_without_reason(snapshot: Snapshot) -> list[str]:
    """Documents written again although no run of their job ended before its time."""
    return _unexplained(snapshot, emails_again, _RECEIPT) + _unexplained(
        snapshot, pdfs_again, _INVOICE
    )


def _unexplained(
    snapshot: Snapshot, again: Callable[[Snapshot], Iterable[str]], type_: str
) -> list[str]:
    explained = {
        job.reference for job in snapshot.jobs if job.type == type_ and snapshot.explained[job.id]
    }
    return [reference for reference in again(snapshot) if reference not in explained]


def _completed(snapshot: Snapshot, type_: str) -> list[JobRecord]:
    return [job for job in snapshot.jobs if (job.type, job.state) == (type_, State.COMPLETED)]


def _sent(snapshot: Snapshot) -> list[OrderRecord]:
    return [order for order in snapshot.orders if chargeable(order)]


def _numbers(order: OrderRecord) -> list[str]:
    return [tracking(order.reference, number) for number in range(1, order.parcels + 1)]

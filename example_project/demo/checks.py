"""The promises, each a function of the facts that answers with the references that break it."""

from collections import Counter
from collections.abc import Callable, Iterable

from django_ojs.spec.states import TERMINAL, State
from example_project.demo.facts import Facts, JobFact, OrderFact
from example_project.demo.place import Placement
from example_project.demo.wipe import JOB_TYPES
from example_project.shop.cards import NEVER_PAYS
from example_project.shop.labels import tracking

_CHARGE, _RECEIPT, _INVOICE, _LABEL = JOB_TYPES


def chargeable(order: OrderFact) -> bool:
    """Whether the money for this order can be had at all."""
    return order.card not in NEVER_PAYS


def lost_orders(facts: Facts, placed: Placement) -> list[str]:
    """Orders that went through and are not in the database."""
    return sorted(placed.committed - {order.reference for order in facts.orders})


def ghost_orders(facts: Facts, placed: Placement) -> list[str]:
    """Orders in the database that did not go through."""
    return sorted({order.reference for order in facts.orders} - placed.committed)


def ghost_jobs(facts: Facts, placed: Placement) -> list[str]:
    """Jobs of orders that did not go through."""
    return sorted(job.reference for job in facts.jobs if job.reference not in placed.committed)


def lost_jobs(facts: Facts, placed: Placement) -> list[str]:
    """Orders without exactly one job of each type."""
    counted = Counter((job.reference, job.type) for job in facts.jobs)
    return sorted(
        reference
        for reference in placed.committed
        if any(counted[reference, type_] != 1 for type_ in JOB_TYPES)
    )


def jobs_left(facts: Facts) -> list[str]:
    """Jobs that are not finished."""
    return sorted(job.reference for job in facts.jobs if job.state not in TERMINAL)


def unpaid(facts: Facts) -> list[str]:
    """Orders whose money was to be had and was not taken, or not all of it."""
    return [o.reference for o in facts.orders if chargeable(o) and sum(o.payments) < o.total]


def paid_twice(facts: Facts) -> list[str]:
    """Orders with more than one payment, or with too much money."""
    return [o.reference for o in facts.orders if len(o.payments) > 1 or sum(o.payments) > o.total]


def paid_by_nobody(facts: Facts) -> list[str]:
    """Payments for orders whose card never pays."""
    return [o.reference for o in facts.orders if not chargeable(o) and o.payments]


def dead_letters(facts: Facts) -> list[JobFact]:
    """Jobs that were given up."""
    return [job for job in facts.jobs if job.state == State.DISCARDED]


def wrongly_discarded(facts: Facts) -> list[str]:
    """Jobs that were given up although they could be done, and the other way round."""
    hopeless = {o.reference for o in facts.orders if not chargeable(o)}
    expected = {(reference, _CHARGE) for reference in hopeless}
    found = {(job.reference, job.type) for job in dead_letters(facts)}
    return sorted(reference for reference, _ in expected ^ found)


def without_email(facts: Facts) -> list[str]:
    """Orders without their e-mail, and e-mails without an order."""
    return sorted({o.reference for o in facts.orders if o.receipts} ^ _all(facts)) or sorted(
        facts.emails ^ _all(facts)
    )


def without_pdf(facts: Facts) -> list[str]:
    """Orders without their invoice, and invoices without an order."""
    return sorted({o.reference for o in facts.orders if o.invoices} ^ _all(facts)) or sorted(
        facts.pdfs ^ _all(facts)
    )


def emails_again(facts: Facts) -> list[str]:
    """Orders whose e-mail was written more than once."""
    return [o.reference for o in facts.orders if o.receipts > 1]


def pdfs_again(facts: Facts) -> list[str]:
    """Orders whose invoice was drawn more than once."""
    return [o.reference for o in facts.orders if o.invoices > 1]


def again_without_reason(facts: Facts) -> list[str]:
    """Documents that were written again although their job was never rescued from a dead worker."""
    return _unexplained(facts, emails_again, _RECEIPT) + _unexplained(facts, pdfs_again, _INVOICE)


def labels(facts: Facts) -> list[JobFact]:
    """The jobs that number parcels, and have."""
    return [job for job in facts.jobs if job.type == _LABEL and job.state == State.COMPLETED]


def without_label(facts: Facts) -> list[str]:
    """Orders without their parcel's number, or with a wrong one."""
    right = {
        job.reference
        for job in labels(facts)
        if job.result.get("tracking") == tracking(job.reference)
    }
    return sorted(right ^ _all(facts))


def labels_again(facts: Facts) -> list[str]:
    """Orders whose label took more than one run although no worker died over it."""
    return [job.reference for job in labels(facts) if job.spent > 1 and job.id not in facts.rescued]


def _unexplained(facts: Facts, again: Callable[[Facts], Iterable[str]], type_: str) -> list[str]:
    rescued = {job.reference for job in facts.jobs if job.type == type_ and job.id in facts.rescued}
    return [reference for reference in again(facts) if reference not in rescued]


def _all(facts: Facts) -> set[str]:
    return {order.reference for order in facts.orders}

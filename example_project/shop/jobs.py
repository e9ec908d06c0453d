"""The shop's jobs. django_ojs finds this module by its name.

They take the order's reference, not its key: arguments should be meaningful to readers of a job.
`services.place_order` makes a workflow of them.
"""

from datetime import timedelta
from typing import Any

from django.db import transaction

import django_ojs as ojs
from django_ojs.extensions import steps
from example_project.shop import cards, invoices, labels, mail, partner, stock
from example_project.shop.models import Commission, Order, Payment, Status
from example_project.shop.moments import pass_by

PAYMENTS, LABELS, COLLECTIONS = "payments", "labels", "collections"
MAIL, DOCUMENTS, IMPORTS, WORKSHOP = "mail", "documents", "imports", "workshop"
REPORT, STOCK_IMPORT = "shop.report", "stock.import"

#: Deliveries that are imported in one transaction.
_PAGE = 20


@ojs.job("order.reserve", queue=PAYMENTS, atomic=True, timeout=30)
def reserve(reference: str) -> dict[str, int]:
    """Take the products of an order from the stock, once: the job is completed in the same commit.

    One that has not arrived yet may have at the next attempt.
    """
    order = Order.objects.get(reference=reference)
    taken = stock.reserve(order)
    order.set_status(Status.RESERVED)
    return {"products": taken}


@ojs.job(
    "order.charge",
    queue=PAYMENTS,
    # The payment and the job's completion are one commit: the customer pays once, whatever
    # happens to the worker.
    atomic=True,
    # A slow network responds to the third attempt; the fourth is for a worker that dies.
    retry=ojs.RetryPolicy(
        max_attempts=4,
        initial_interval=timedelta(milliseconds=500),
        max_interval=timedelta(seconds=2),
        non_retryable_errors=("MalformedCard",),
    ),
    timeout=30,
)
def charge(ctx: ojs.JobContext, reference: str) -> dict[str, str]:
    """Take the money for an order."""
    order = Order.objects.get(reference=reference)
    cards.authorise(order.card, attempt=ctx.spent)
    Payment.objects.create(order=order, amount=order.total, attempt=ctx.attempt)
    order.set_status(Status.PAID)
    return {"amount": str(order.total)}


@ojs.job("order.label", queue=LABELS, timeout=30)
def label(reference: str, parcel: int) -> dict[str, str]:
    """Ask the carrier for the number of a parcel, no more often than the carrier allows.

    The queue has the limits, see the settings.
    """
    return {"tracking": labels.tracking(reference, parcel)}


@ojs.job("order.handover", queue=COLLECTIONS, timeout=30)
def handover(ctx: ojs.JobContext, reference: str) -> dict[str, object]:
    """Ask the carrier to collect the parcels of an order: the step before has their numbers.

    The demonstration leaves these jobs to the worker in Node, where Node is installed.
    """
    steps: list[Any] = ctx.parent_results
    numbers = [label["tracking"] for label in steps[-1]]
    return {"collection": labels.collection(numbers), "parcels": numbers, "by": "python"}


@ojs.job("order.receipt", queue=MAIL, timeout=30)
def receipt(ctx: ojs.JobContext, reference: str) -> None:
    """Write to the customer. May run again after a crash: the same message then replaces itself."""
    steps: list[Any] = ctx.parent_results
    mail.send_receipt(Order.objects.get(reference=reference), steps[-1]["parcels"])


@ojs.job("order.invoice", queue=DOCUMENTS, timeout=60)
def invoice(reference: str) -> dict[str, str]:
    """Draw the invoice. May run again after a crash: the same file is then written again."""
    return {"file": invoices.store(Order.objects.get(reference=reference))}


@ojs.job("order.cancel", queue=PAYMENTS, atomic=True, timeout=30)
def cancel(reference: str) -> dict[str, int]:
    """Cancel an order that cannot be sent, and put back what was reserved for it."""
    order = Order.objects.get(reference=reference)
    released = stock.release(order) if order.status == Status.RESERVED else 0
    order.set_status(Status.CANCELLED)
    return {"products": released}


@ojs.job(STOCK_IMPORT, queue=IMPORTS, timeout=600)
def import_deliveries(ctx: ojs.JobContext) -> dict[str, int]:
    """Add the deliveries of the file to the stock.

    The checkpoint commits with the rows of its page: if the worker dies, the next run continues
    with the page after it, and no delivery is counted twice or left out.
    """
    rows = stock.deliveries()
    first: int = ctx.last_checkpoint or 0
    for start in range(first, len(rows), _PAGE):
        end = min(start + _PAGE, len(rows))
        with transaction.atomic():
            stock.receive(rows[start:end])
            ctx.checkpoint(end)
        ctx.progress(end / len(rows), f"{end:,} of {len(rows):,} deliveries")
    return {"deliveries": len(rows), "continued_after": first}


def _ask_once(what: str) -> str:
    pass_by(f"in {what}, before its request")
    number = partner.ask(what, steps.idempotency_key())
    pass_by(f"in {what}, before its result is stored")
    return number


@ojs.job(
    "order.commission",
    queue=WORKSHOP,
    # A run that ends with its worker is an attempt.
    retry=ojs.RetryPolicy(max_attempts=30),
    timeout=60,
)
def commission(reference: str) -> dict[str, str]:
    """Sell a piece that is made for one customer: a job of many steps, which takes days.

    Each step is done once, however often a worker dies. What the partner is asked for again has the
    same idempotency key.
    """
    pass_by("before charge")
    charge = steps.run("charge", _ask_once, "charge")
    pass_by("after charge")
    with steps.atomic("reserve") as reserve:
        if reserve.pending:
            Commission.objects.create(reference=reference, charge=charge)
            pass_by("in reserve, before its commit")
    pass_by("after reserve")
    steps.sleep("cool-off", timedelta(seconds=1))
    pass_by("after cool-off")
    steps.wait("packed", reference, timeout=timedelta(days=14))
    pass_by("after packed")
    parcel = steps.run("parcel", _ask_once, "parcel")
    pass_by("after parcel")
    return {"charge": charge, "parcel": parcel}


@ojs.cron("0 3 * * *", timezone="Europe/Paris")
@ojs.job(REPORT, queue=DOCUMENTS, timeout=60)
def report() -> dict[str, int]:
    """Count the orders, every night."""
    orders = Order.objects.all()
    return {"orders": orders.count(), "paid": orders.filter(status=Status.PAID).count()}

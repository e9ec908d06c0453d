"""The shop's jobs. django_ojs finds this module by its name.

They take the order's reference, not its key: arguments should be meaningful to readers of a job.
"""

from datetime import timedelta

import django_ojs as ojs
from example_project.shop import cards, invoices, labels, mail
from example_project.shop.models import Order, Payment, Status

PAYMENTS, LABELS, MAIL, DOCUMENTS = "payments", "labels", "mail", "documents"
REPORT = "shop.report"


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
    cards.authorise(order.card, attempt=ctx.attempt)
    Payment.objects.create(order=order, amount=order.total, attempt=ctx.attempt)
    order.status = Status.PAID
    order.save(update_fields=["status"])
    return {"amount": str(order.total)}


@ojs.job("order.receipt", queue=MAIL, timeout=30)
def receipt(reference: str) -> None:
    """Write to the customer. May run again after a crash: the same message then replaces itself."""
    mail.send_receipt(Order.objects.get(reference=reference))


@ojs.job("order.invoice", queue=DOCUMENTS, timeout=60)
def invoice(reference: str) -> dict[str, str]:
    """Draw the invoice. May run again after a crash: the same file is then written again."""
    return {"file": invoices.store(Order.objects.get(reference=reference))}


@ojs.job("order.label", queue=LABELS, timeout=30)
def label(reference: str) -> dict[str, str]:
    """Number the parcel. The workers in Node have a handler for this type too."""
    return {"tracking": labels.tracking(reference), "by": "python"}


@ojs.cron("0 3 * * *", timezone="Europe/Paris")
@ojs.job(REPORT, queue=DOCUMENTS, timeout=60)
def report() -> dict[str, int]:
    """Count the orders, every night."""
    orders = Order.objects.all()
    return {"orders": orders.count(), "paid": orders.filter(status=Status.PAID).count()}

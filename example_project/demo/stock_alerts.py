"""Customers wait for products: each is alerted once that the product has arrived."""

import time

from django_ojs.models import Job
from django_ojs.spec.states import TERMINAL
from example_project.demo.cleanup import STOCK_ALERT_JOB
from example_project.shop import stock
from example_project.shop.catalogue import baskets
from example_project.shop.models import StockAlert

_TIMEOUT_SECONDS = 180.0
_POLL_SECONDS = 0.1


def ask() -> None:
    """Ask for an e-mail on behalf of the first customer of each product that will arrive."""
    first = {line.product: each.email for each in reversed(baskets()) for line in each.lines}
    arriving = {delivery.product for delivery in stock.deliveries()}
    StockAlert.objects.bulk_create(
        StockAlert(product=product, email=email)
        for product, email in sorted(first.items())
        if product in arriving
    )


def wait() -> None:
    """Return when workers have run the tasks; the ledger shows what is not finished."""
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    unfinished = Job.objects.filter(type=STOCK_ALERT_JOB).exclude(state__in=TERMINAL)
    while unfinished.exists() and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)

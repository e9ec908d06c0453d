"""The warehouse: deliveries come in, orders go out."""

import csv
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from django.db.models import F

from example_project.shop import tasks
from example_project.shop.catalogue import Line
from example_project.shop.models import Order, Stock, StockAlert

DELIVERIES_CSV = Path(__file__).parent / "data" / "deliveries.csv"

#: Products that customers order and the warehouse will never get again.
SOLD_OUT = frozenset({"Copper Kettle 1.5 l"})


class SoldOut(Exception):
    """A product of the order is not in stock."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivery:
    """A line of `data/deliveries.csv`: so much of a product has arrived."""

    product: str
    quantity: int


@cache
def deliveries() -> tuple[Delivery, ...]:
    """Return every delivery, in the order of the file."""
    with DELIVERIES_CSV.open(encoding="utf-8", newline="") as handle:
        return tuple(
            Delivery(product=row["product"], quantity=int(row["quantity"]))
            for row in csv.DictReader(handle)
        )


def receive(arrived: Sequence[Delivery]) -> None:
    """Add deliveries to the stock, and enqueue the e-mails to customers who wait.

    To add one twice would be wrong by its quantity. The caller opens the transaction: if it rolls
    back, the tasks are gone with the deliveries: no e-mail is about what did not arrive.
    """
    for delivery in arrived:
        Stock.objects.get_or_create(product=delivery.product)
        _add(delivery.product, delivery.quantity)
    products = {delivery.product for delivery in arrived}
    waiting = StockAlert.objects.filter(product__in=products, arrived=False)
    alerts = list(waiting.select_for_update().values_list("pk", flat=True))
    for alert in alerts:
        tasks.send_stock_alert.enqueue(alert)
    StockAlert.objects.filter(pk__in=alerts).update(arrived=True)


def check(lines: Iterable[Line]) -> None:
    """Raise SoldOut when one of the lines can never be sent."""
    for line in lines:
        if line.product in SOLD_OUT:
            raise SoldOut(f"{line.product} is sold out")


def reserve(order: Order) -> int:
    """Take the products of an order from the stock; return how many. Raises SoldOut."""
    wanted = _quantities(order)
    # In the order of their names: two orders of the same products then cannot deadlock.
    for product, quantity in sorted(wanted.items()):
        in_stock = Stock.objects.filter(product=product, quantity__gte=quantity)
        if not in_stock.update(quantity=F("quantity") - quantity):
            raise SoldOut(f"there are fewer than {quantity} of {product}")
    return wanted.total()


def release(order: Order) -> int:
    """Put the products of an order back; return how many."""
    wanted = _quantities(order)
    for product, quantity in sorted(wanted.items()):
        _add(product, quantity)
    return wanted.total()


def _add(product: str, quantity: int) -> None:
    Stock.objects.filter(product=product).update(quantity=F("quantity") + quantity)


def _quantities(order: Order) -> Counter[str]:
    wanted: Counter[str] = Counter()
    for item in order.items.all():
        wanted[item.product] += item.quantity
    return wanted

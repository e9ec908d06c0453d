"""The order book that comes with the example: `data/orders.csv`, one row a line of an order."""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cache
from itertools import groupby
from pathlib import Path

from example_project.shop import labels

ORDERS_CSV = Path(__file__).parent / "data" / "orders.csv"


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A product, how many of it, and the price of one."""

    product: str
    quantity: int
    unit_price: Decimal


@dataclass(frozen=True, kw_only=True, slots=True)
class Basket:
    """What a customer sends off: who, with which card, and the lines."""

    reference: str
    placed_at: datetime
    customer: str
    email: str
    card: str
    lines: tuple[Line, ...]

    @property
    def total(self) -> Decimal:
        """The sum over all lines."""
        return sum((line.quantity * line.unit_price for line in self.lines), Decimal(0))

    @property
    def parcels(self) -> int:
        """How many parcels the products need."""
        return labels.parcels(sum(line.quantity for line in self.lines))


@cache
def baskets() -> tuple[Basket, ...]:
    """Return every basket of the order book, in its order."""
    with ORDERS_CSV.open(encoding="utf-8", newline="") as handle:
        return tuple(_baskets(csv.DictReader(handle)))


def _baskets(rows: Iterable[dict[str, str]]) -> Iterator[Basket]:
    for reference, group in groupby(rows, key=lambda row: row["reference"]):
        lines = list(group)
        first = lines[0]
        yield Basket(
            reference=reference,
            placed_at=datetime.fromisoformat(first["ordered_at"]),
            customer=first["customer"],
            email=first["email"],
            card=first["card"],
            lines=tuple(
                Line(
                    product=row["product"],
                    quantity=int(row["quantity"]),
                    unit_price=Decimal(row["unit_price"]),
                )
                for row in lines
            ),
        )

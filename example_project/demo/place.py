"""Place the orders of the order book, as customers would: one transaction each."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from example_project.shop.catalogue import Basket
from example_project.shop.models import Source
from example_project.shop.services import place_order
from example_project.shop.stock import SoldOut


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """What the customers saw: the orders that went through and those that did not."""

    committed: frozenset[str]
    rolled_back: frozenset[str]


def place(baskets: Iterable[Basket], *, seen: Callable[[int], None]) -> Placement:
    """Place every basket and say which went through; `seen` hears how many were tried so far."""
    committed, rolled_back = set(), set()
    for number, basket in enumerate(baskets, start=1):
        try:
            place_order(basket, source=Source.DEMO)
        except SoldOut:
            rolled_back.add(basket.reference)
        else:
            committed.add(basket.reference)
        seen(number)
    return Placement(committed=frozenset(committed), rolled_back=frozenset(rolled_back))

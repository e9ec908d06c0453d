"""Place the orders of the order book, each in its own transaction."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from example_project.shop.catalogue import Basket
from example_project.shop.models import Source
from example_project.shop.services import place_order
from example_project.shop.stock import SoldOut


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """The references of the orders that were committed and of those that were rolled back."""

    committed: frozenset[str]
    rolled_back: frozenset[str]


def place_orders(baskets: Iterable[Basket], *, on_progress: Callable[[int], None]) -> Placement:
    """Place every basket; `on_progress` is called with the number of baskets tried so far."""
    committed, rolled_back = set(), set()
    for number, basket in enumerate(baskets, start=1):
        try:
            place_order(basket, source=Source.DEMO)
        except SoldOut:
            rolled_back.add(basket.reference)
        else:
            committed.add(basket.reference)
        on_progress(number)
    return Placement(committed=frozenset(committed), rolled_back=frozenset(rolled_back))

"""A simulated warehouse, in which one product is sold out."""

from collections.abc import Iterable

from example_project.shop.catalogue import Line

SOLD_OUT = frozenset({"Copper Kettle 1.5 l"})


class SoldOut(Exception):
    """A product of the order is not in stock."""


def reserve(lines: Iterable[Line]) -> None:
    """Reserve the products of the lines. Raises SoldOut when one is not in stock."""
    for line in lines:
        if line.product in SOLD_OUT:
            raise SoldOut(f"{line.product} is sold out")

"""A pretended warehouse: one product is sold out, and finding that out ends an order."""

from collections.abc import Iterable

from example_project.shop.catalogue import Line

SOLD_OUT = frozenset({"Copper Kettle 1.5 l"})


class SoldOut(Exception):
    """A product of the order is not on the shelf."""


def reserve(lines: Iterable[Line]) -> None:
    """Take the lines from the shelf. Raises SoldOut when one of them is not there."""
    for line in lines:
        if line.product in SOLD_OUT:
            raise SoldOut(f"{line.product} is sold out")

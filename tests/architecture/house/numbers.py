"""The register of the numbers, and their limits.

Each number is counted by a function whose docstring says what counts. The function returns what
stands behind the number, so that `scripts/house --list NAME` can show it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).with_name("numbers.toml")


@dataclass(frozen=True, kw_only=True)
class Count:
    """A number, and the lines that show what stands behind it."""

    value: float
    items: list[str]


@dataclass(frozen=True, kw_only=True)
class Number:
    """How a number is counted. `rule` says what counts; `runs`: processes have to run for it."""

    name: str
    title: str
    rule: str
    count: Callable[[], Count]
    runs: bool


@dataclass(frozen=True, kw_only=True)
class Limit:
    """What the data file says of a number: its value before the round, its limit and its aim.

    A number without a limit is printed and not tested.
    """

    name: str
    before: float | None = None
    limit: float | None = None
    aim: float | None = None


NUMBERS: dict[str, Number] = {}

Counter = Callable[[], Count]


def number(name: str, title: str, *, runs: bool = False) -> Callable[[Counter], Counter]:
    """Register the function that counts a number."""

    def register(count: Counter) -> Counter:
        add(name, title, count, count.__doc__ or "", runs=runs)
        return count

    return register


def add(name: str, title: str, count: Counter, rule: str, *, runs: bool = False) -> None:
    """Register a number."""
    NUMBERS[name] = Number(
        name=name, title=title, rule=" ".join(rule.split()), count=cache(count), runs=runs
    )


def of(items: Iterable[str]) -> Count:
    """Count these."""
    found = sorted(items)
    return Count(value=len(found), items=found)


@cache
def data() -> dict[str, Any]:
    """Return the data file."""
    return tomllib.loads(DATA.read_text())


def limits() -> dict[str, Limit]:
    """Return what the data file says of each number."""
    return {name: Limit(name=name, **values) for name, values in data()["numbers"].items()}


def slack(limit: float) -> float:
    """Return how far a number may be below its limit before the limit has to follow it."""
    return max(1, limit // 50)


def lowered(text: str, values: dict[str, float]) -> str:
    """Return the text of the data file with the limits of numbers that are below them now."""
    for name, limit in limits().items():
        if limit.limit is not None and name in values and values[name] < limit.limit:
            head, row, tail = text.partition(f"\n{name} = {{")
            old, end, rest = tail.partition("\n")
            new = old.replace(f"limit = {limit.limit:g}", f"limit = {values[name]:g}")
            text = head + row + new + end + rest
    return text

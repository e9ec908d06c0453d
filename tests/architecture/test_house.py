"""No change makes a number of `make house` worse than its limit, and a limit follows its number."""

from __future__ import annotations

import pytest

from tests.architecture.house import files, numbers, since
from tests.architecture.house.numbers import NUMBERS, Limit, limits
from tests.architecture.imports import modules

TESTED = [name for name, each in limits().items() if each.limit is not None]
#: Lines of a list that a message shows.
SHOWN = 30


def complaint(limit: Limit, value: float) -> str:
    """Return what is wrong with a number; empty where nothing is."""
    assert limit.limit is not None
    if value > limit.limit:
        return f"{limit.name} is {value:g}, and its limit is {limit.limit:g}"
    if limit.limit - value > numbers.slack(limit.limit):
        return (
            f"{limit.name} is {value:g}, better than its limit of {limit.limit:g}: "
            "`scripts/house --lower` writes the new limit"
        )
    return ""


def new_lines(name: str) -> str:
    """Return what is new behind a number since this branch began."""
    commit = since.branched_from()
    new, _ = since.difference(name, commit)
    shown = new[:SHOWN] + [f"and {len(new) - SHOWN} more"] * (len(new) > SHOWN)
    return "\n".join([f"New since {commit[:12]} (scripts/house --list {name}):", *shown])


@pytest.mark.parametrize("name", TESTED)
def test_a_number_is_within_its_limit(name: str) -> None:
    limit, value = limits()[name], NUMBERS[name].count().value

    said = complaint(limit, value)
    if said and value > (limit.limit or 0):
        said += f"\n{new_lines(name)}"

    assert not said, said


def test_each_number_is_in_the_data_file() -> None:
    assert list(limits()) == list(NUMBERS)
    assert all(each.rule for each in NUMBERS.values())


def test_the_map_names_what_there_is_and_all_of_it() -> None:
    placed = {module: files.place(module) for module in modules()}
    there = {files.short(module) for module in modules()}
    maps = (numbers.data()["parts"], numbers.data()["subjects"])
    named = [name for each in maps for names in each.values() for name in names]

    assert [module for module, (kind, _) in placed.items() if not kind] == []
    assert sorted(set(named)) == sorted(named)
    assert set(named) - there <= {"extension"}


def test_a_number_above_its_limit_and_one_far_below_it_are_told_apart() -> None:
    limit = Limit(name="imports-core", limit=100)

    assert complaint(limit, 101) == "imports-core is 101, and its limit is 100"
    assert complaint(limit, 100) == complaint(limit, 98) == ""
    assert "scripts/house --lower" in complaint(limit, 97)

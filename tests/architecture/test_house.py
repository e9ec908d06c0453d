"""No change makes a number of `make house` worse than its limit, and a limit follows its number."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from subprocess import CalledProcessError

import django
import pytest

from tests.architecture.house import files, numbers, runs, since
from tests.architecture.house.numbers import NUMBERS, Limit, limits
from tests.architecture.imports import modules

TESTED = [each for each in limits().values() if each.limit is not None]
#: Other versions import other modules, and may call other functions.
VERSIONS = {
    "python": ".".join(map(str, sys.version_info[:2])),
    "django": ".".join(map(str, django.VERSION[:2])),
}
#: Lines of a list that a message shows.
SHOWN = 30


def complaint(limit: Limit, value: float) -> str:
    """Return what is wrong with a number; empty where nothing is."""
    assert limit.limit is not None
    if value > limit.limit:
        return f"{limit.name} is {value:g}, and its limit is {limit.limit:g}"
    # What processes do differs by a few: caches, and what was imported before.
    is_exact = not NUMBERS[limit.name].runs
    if is_exact and limit.limit - value > numbers.slack(limit.limit):
        return (
            f"{limit.name} is {value:g}, better than its limit of {limit.limit:g}: "
            "`scripts/house --lower` writes the new limit"
        )
    return ""


def new_lines(name: str) -> str:
    """Return what is new behind a number since this branch began, where git can say it."""
    try:
        commit = since.branched_from()
        new, _ = since.difference(name, commit)
    except (OSError, CalledProcessError) as error:
        return f"What is new is not known ({error}): scripts/house --list {name}"
    shown = new[:SHOWN] + [f"and {len(new) - SHOWN} more"] * (len(new) > SHOWN)
    return "\n".join([f"New since {commit[:12]} (scripts/house --list {name}):", *shown])


def complaints(tested: Iterable[Limit]) -> list[str]:
    """Return what is wrong with numbers, with the lines that are new behind each that is worse."""
    said = []
    for limit in tested:
        value = NUMBERS[limit.name].count().value
        if text := complaint(limit, value):
            is_worse = value > (limit.limit or 0)
            said.append(f"{text}\n{new_lines(limit.name)}" if is_worse else text)
    return said


def test_the_numbers_of_the_files_are_within_their_limits() -> None:
    said = complaints(each for each in TESTED if not NUMBERS[each.name].runs)

    assert not said, "\n".join(said)


@pytest.mark.slow
@pytest.mark.skipif(numbers.data()["versions"] != VERSIONS, reason="counted on other versions")
def test_the_numbers_of_processes_are_within_their_limits() -> None:
    runs.prefetch(starts=1)

    said = complaints(each for each in TESTED if NUMBERS[each.name].runs)

    assert not said, "\n".join(said)


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


def test_a_limit_that_is_too_high_is_lowered_and_no_other_is_changed() -> None:
    text = numbers.DATA.read_text()
    limit = limits()["closure-push"].limit
    assert limit is not None

    lower = numbers.lowered(text, {"closure-push": limit - 1, "closure-worker": 10_000})

    row = f"closure-push = {{ before = {limits()['closure-push'].before:g}, limit = "
    assert lower == text.replace(f"{row}{limit:g}", f"{row}{limit - 1:g}")
    assert lower != text

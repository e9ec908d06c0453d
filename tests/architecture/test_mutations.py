"""The list of scripts/mutants still applies to the code, and its table shows all of it as found."""

from __future__ import annotations

import runpy
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import table

ROOT = Path(__file__).parents[2]
MUTATIONS: list[dict[str, Any]] = tomllib.loads((ROOT / "tests/mutations.toml").read_text())[
    "mutation"
]
EACH = pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation["name"])
#: With those of the requirements, whose tests and table tests/conformance/test_table.py checks.
ALL = pytest.mark.parametrize(
    "mutation",
    [*MUTATIONS, *table.MUTATIONS],
    ids=lambda mutation: mutation.get("requirement", mutation["name"]),
)


def test_the_list_has_at_least_forty_mutations_of_different_names() -> None:
    names = Counter(mutation["name"] for mutation in MUTATIONS)
    assert len(names) >= 40
    assert [name for name, times in names.items() if times > 1] == []


@ALL
def test_the_text_to_replace_stands_once_in_its_file(mutation: dict[str, Any]) -> None:
    source = (ROOT / mutation["file"]).read_text()
    assert source.count(mutation["before"]) == 1
    assert source.replace(mutation["before"], mutation["after"]) != source


@ALL
def test_a_broken_python_file_is_still_python(mutation: dict[str, Any]) -> None:
    if mutation["file"].endswith(".py"):
        source = (ROOT / mutation["file"]).read_text()
        compile(source.replace(mutation["before"], mutation["after"]), mutation["file"], "exec")


@EACH
def test_its_tests_exist(mutation: dict[str, Any]) -> None:
    assert mutation["tests"]
    for test in mutation["tests"]:
        path, _, name = test.partition("::")
        assert (ROOT / path).exists()
        assert not name or f"def {name.rpartition('::')[2]}(" in (ROOT / path).read_text()


def test_the_table_says_of_each_which_test_finds_it() -> None:
    rows = runpy.run_path(str(ROOT / "scripts/mutants"))["rows"]()
    assert {mutation["name"] for mutation in MUTATIONS} <= rows.keys()
    assert [name for name, row in rows.items() if "**not found**" in row] == []


def test_the_tests_that_the_table_names_exist() -> None:
    rows = runpy.run_path(str(ROOT / "scripts/mutants"))["rows"]()
    tests = [row.split("|")[3].strip(" `") for row in rows.values() if "::" in row]
    missing = []
    for test in tests:
        path, _, name = test.partition("::")
        function = name.rpartition("::")[2].partition("[")[0]
        if not (ROOT / path).is_file() or f"def {function}(" not in (ROOT / path).read_text():
            missing.append(test)
    assert missing == []

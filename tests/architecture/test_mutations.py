"""The lists of scripts/mutants still apply to the code, and the table of the first is complete."""

from __future__ import annotations

import runpy
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from tests.conformance.marks import marks

ROOT = Path(__file__).parents[2]


def listed(path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads((ROOT / path).read_text())["mutation"]
    return found


MUTATIONS = listed("tests/mutations.toml")
#: Their tests are those that are marked with the requirement.
OF_REQUIREMENTS = listed("tests/conformance/mutations.toml")
ALL = [*MUTATIONS, *OF_REQUIREMENTS]


def name_of(mutation: dict[str, Any]) -> str:
    return str(mutation.get("requirement", mutation["name"]))


@cache
def text_of(path: str) -> str:
    return (ROOT / path).read_text()


def test_the_list_has_at_least_forty_mutations_of_different_names() -> None:
    names = Counter(mutation["name"] for mutation in MUTATIONS)
    assert len(names) >= 40
    assert [name for name, times in names.items() if times > 1] == []


def test_each_requirement_with_a_test_has_a_mutation_and_no_other_has() -> None:
    names = Counter(mutation["requirement"] for mutation in OF_REQUIREMENTS)
    assert names.keys() == marks().keys(), "see tests/conformance/mutations.toml"
    assert [name for name, times in names.items() if times > 1] == []


def test_the_text_to_replace_stands_once_in_its_file() -> None:
    assert [
        name_of(each)
        for each in ALL
        if text_of(each["file"]).count(each["before"]) != 1 or each["before"] == each["after"]
    ] == []


def test_the_sql_of_a_database_is_broken_for_a_test_of_that_database() -> None:
    # Another database does not read it, so no test there can fail.
    of = {each: f"/sql/{each}/" for each in ("postgresql", "sqlite")}
    assert [
        name_of(mutation)
        for mutation in ALL
        for database, folder in of.items()
        if folder in mutation["file"] and mutation.get("database", "postgresql") != database
    ] == []


def test_a_broken_python_file_is_still_python() -> None:
    for each in ALL:
        if each["file"].endswith(".py"):
            broken = text_of(each["file"]).replace(each["before"], each["after"])
            compile(broken, f"{each['file']} of {name_of(each)}", "exec")


def test_the_tests_of_each_exist() -> None:
    missing = []
    for each in MUTATIONS:
        assert each["tests"], name_of(each)
        for test in each["tests"]:
            path, _, name = test.partition("::")
            if not (ROOT / path).exists() or (
                name and f"def {name.rpartition('::')[2]}(" not in text_of(path)
            ):
                missing.append(test)
    assert missing == []


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

"""Which test runs where: see tests/README.md.

`OJS_TEST_TIER=short` leaves out what the other database's run, or `make faults`, shows as well, and
`storm` is what `make faults` and `make fuzz` run. The default, `full`, runs whatever was collected.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.databases import KIND

TESTS = Path(__file__).parents[1]
FAULTS = TESTS / "faults"
#: The tests of these folders run once, with PostgreSQL, except for those with a mark of their own.
#: Those of the documentation need no database. Those of a door (a page, a route, a subcommand) are
#: about what the door reads, permits and shows: the operations behind it have tests of their own,
#: on both databases. On SQLite each door is opened by the scenes that are marked `both`: each route
#: for an administrator, each page with things of every kind and each of its actions, and the
#: queries that only a door makes.
ONCE = tuple(TESTS / name for name in ("docs", "admin", "command_line", "http", "management"))
NAMES = ("short", "full", "storm")
NAME = os.environ.get("OJS_TEST_TIER", "full")

_DATABASE_FIXTURES = {"db", "transactional_db", "live_server", "django_db_setup", "ojs"}
_TABLE = pytest.StashKey[Counter[tuple[str, bool]]]()


def tier_of(item: pytest.Item) -> str:
    """Return the tier of a test: storm, pages, process, once or both."""
    for name in ("storm", "pages"):
        if item.get_closest_marker(name):
            return name
    # The mark of a test goes before that of its file: of a file that runs once, a scene runs twice.
    marked = next((each.name for each in item.iter_markers() if each.name in ("once", "both")), "")
    if marked == "once" or not (marked or _uses_the_database(item)):
        return "once"
    if is_about_processes(item):
        return "process"
    return "both" if marked or not _is_in_a_folder_that_runs_once(item.path) else "once"


@cache
def _is_in_a_folder_that_runs_once(path: Path) -> bool:
    return any(folder in path.parents for folder in ONCE)


def _uses_the_database(item: pytest.Item) -> bool:
    fixtures = getattr(item, "fixturenames", ())
    return bool(item.get_closest_marker("django_db")) or not _DATABASE_FIXTURES.isdisjoint(fixtures)


def is_about_processes(item: pytest.Item) -> bool:
    """Return whether a test starts processes of its own, or a browser."""
    return "process_environment" in getattr(item, "fixturenames", ()) or any(
        item.get_closest_marker(name) for name in ("process", "browser")
    )


def runs(item: pytest.Item, tier: str) -> bool:
    """Return whether a test of this tier is run on this database."""
    if NAME == "full":
        return True
    if NAME == "storm" and not _is_a_fault(item):
        return False
    if tier in ("storm", "pages"):
        return tier == NAME
    if KIND == "postgresql" or tier == "both" or item.get_closest_marker(KIND):
        return True
    return tier == "process" and (NAME == "storm" or bool(item.get_closest_marker("smoke")))


def _is_a_fault(item: pytest.Item) -> bool:
    return (
        item.path.parent == FAULTS
        or any(item.get_closest_marker(name) for name in ("storm", "sized"))
        # Of random examples there are more (tests/conftest.py).
        or bool(getattr(getattr(item, "obj", None), "is_hypothesis_test", False))
    )


#: A file with this line, or in one of those folders, runs once, except for tests with a mark of
#: their own.
_ONCE = re.compile(r"^pytestmark = .*\bmark\.once\b", re.MULTILINE)
_TWICE = re.compile(rf"\bmark\.(both|smoke|{KIND})\b")


def runs_once(path: Path, text: str) -> bool:
    """Return whether all tests of a file run with PostgreSQL only, whatever else they use."""
    once = _is_in_a_folder_that_runs_once(path) or bool(_ONCE.search(text))
    return once and not _TWICE.search(text)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Do not even import a file of which no test would run: some import large libraries."""
    if NAME != "short" or KIND == "postgresql" or collection_path.suffix != ".py":
        return None
    is_test = collection_path.name.startswith("test_")
    return True if is_test and runs_once(collection_path, collection_path.read_text()) else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if NAME not in NAMES:
        raise pytest.UsageError(f"OJS_TEST_TIER: must be one of {', '.join(NAMES)}")
    tiers = {item: tier_of(item) for item in items}
    chosen = [item for item in items if runs(item, tiers[item])]
    dropped = set(items).difference(chosen)
    table = config.stash[_TABLE] = Counter((tiers[item], item in dropped) for item in items)
    if hasattr(config, "workeroutput"):
        config.workeroutput["tiers"] = [[*key, count] for key, count in table.items()]
    if dropped:
        config.hook.pytest_deselected(items=[item for item in items if item in dropped])
    items[:] = _in_order([i for i in chosen if tiers[i] == "process"], chosen)


def _in_order(first: list[pytest.Item], items: list[pytest.Item]) -> list[pytest.Item]:
    # Each of xdist's workers begins with an equal part of the list, and takes from the end of
    # others when it is done: the first one gets the tests that mostly wait, beside which the others
    # use the processor.
    waiting = set(first)
    return [*first, *(item for item in items if item not in waiting)]


def pytest_testnodedown(node: Any, error: object) -> None:
    """Keep what a worker of xdist has collected: all of them have collected the same."""
    found = getattr(node, "workeroutput", {}).get("tiers")
    if found:
        node.config.stash[_TABLE] = Counter({(tier, out): count for tier, out, count in found})


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    table = config.stash.get(_TABLE, None)
    if table is None or NAME == "full":
        return
    terminalreporter.section(f"the {NAME} suite on {KIND}")
    for tier in ("both", "once", "process", "storm", "pages"):
        ran, left = table[tier, False], table[tier, True]
        why = {
            "both": "on both databases",
            "once": "no database: with PostgreSQL only; some files are not even read",
            "process": "processes: on PostgreSQL, on SQLite a selection (smoke)",
            "storm": "make faults, make fuzz",
            "pages": "make docs",
        }[tier]
        terminalreporter.write_line(f"{tier:8} {ran:5} run, {left:5} left out   ({why})")

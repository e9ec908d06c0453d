"""A site for each test, and a summary of what was measured."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults import ledger
from tests.faults.replication import Pair, replicated_pair
from tests.faults.site import Site
from tests.sizes import FULL as FULL

_reported: list[str] = []

Report = Callable[[str], None]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if _reported:
        terminalreporter.section("faults")
        for line in _reported:
            terminalreporter.write_line(line)


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Report:
    """Return a function that prints a line at the end of the run."""

    def say(line: str) -> None:
        print(line)
        _reported.append(f"{request.node.name}: {line}")

    return say


@pytest.fixture
def seed(report: Report) -> int:
    """Return the seed of this test: a new one each time, or the one in OJS_FAULTS_SEED."""
    chosen = int(os.environ.get("OJS_FAULTS_SEED") or secrets.randbelow(2**32))
    print(f"OJS_FAULTS_SEED={chosen}")
    return chosen


@pytest.fixture
def site(process_environment: dict[str, str], tmp_path: Path, seed: int) -> Iterator[Site]:
    """Return the scene, with the suite's database; all of it is ended whatever happens."""
    ledger.create()
    scene = Site(process_environment, tmp_path, seed)
    try:
        yield scene
    finally:
        scene.close()
        ledger.drop()


@pytest.fixture
def pair(site: Site) -> Iterator[Pair]:
    """Return a migrated primary that holds the jobs; the ledger stays on the suite's server."""
    with_admin = "tests.faults.http_settings"
    with replicated_pair() as servers, site.with_jobs_on(servers.settings, with_admin):
        yield servers

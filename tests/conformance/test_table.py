"""What is declared is shown: requirements, tests, the page and the manifest agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from django_ojs.http.manifest import declared
from tests.conformance.marks import marks
from tests.conformance.requirements import (
    CORE,
    CRON,
    DOCUMENTS,
    EXTENSIONS,
    KNOWN,
    LEVELS,
    NOTES,
    Section,
)
from tests.conformance.table import PAGE, complete, declared_level, render
from tests.http.api import Api

FOUND = marks()
#: The extensions of the manifest, official ones and others.
DECLARED = sorted(
    name for each in declared() for name in (each.official, each.experimental) if name
)
#: What stands behind a capability that the manifest has as true.
CAPABILITIES = {
    "batch_enqueue": ["L4-BULK-001"],
    "cron_jobs": ["L2-CRON-001", "L2-CRON-002", "L2-CRON-003"],
    "dead_letter": ["L1-DLQ-001", "L1-DLQ-002"],
    "delayed_jobs": ["L2-DEL-001", "L2-DEL-002"],
    "job_ttl": ["L2-TTL-001", "L2-TTL-002"],
    "priority_queues": ["L4-PRI-001", "L4-PRI-002"],
    "rate_limiting": ["L4-RATE-001"],
    "unique_jobs": ["L4-UNIQ-001", "L4-UNIQ-002", "L4-UNIQ-003"],
    "pause_resume": ["L4-PAUSE-001", "L4-PAUSE-002"],
    "schema_validation": ["not yet"],
    "workflows": ["L3-CHAIN-001", "L3-GROUP-001", "L3-BATCH-001"],
}


@pytest.fixture
def manifest(db: None) -> Any:
    return Api().get("/ojs/manifest").ok()


def test_every_mark_names_a_requirement_that_is_listed() -> None:
    assert FOUND.keys() <= KNOWN.keys(), "see tests/conformance/requirements.py"
    assert NOTES.keys() <= KNOWN.keys()


def test_the_page_is_what_the_generator_prints() -> None:
    assert PAGE.read_text() == render(), "run python -m tests.conformance.table"


def test_the_manifest_declares_the_highest_level_all_of_which_is_tested(manifest: Any) -> None:
    assert manifest["conformance_level"] == declared_level(FOUND)


@pytest.mark.parametrize("level", [0, 1, 2, 3, 4])
def test_each_requirement_of_a_declared_level_has_a_test(level: int) -> None:
    assert LEVELS[level].must.keys() - FOUND.keys() == set()


@pytest.mark.parametrize("section", [*CORE, CRON], ids=lambda section: section.title)
def test_each_requirement_of_a_document_has_a_test(section: Section) -> None:
    assert (section.must | section.may).keys() - FOUND.keys() == set()


def test_a_requirement_without_a_test_says_what_is_not_there() -> None:
    listed = {name for section in DOCUMENTS for name in section.must | section.may}
    explained = {name for name, note in NOTES.items() if note.startswith("Not ")}
    assert listed - FOUND.keys() - explained == set()


@pytest.mark.parametrize("name", DECLARED)
def test_each_requirement_of_a_declared_extension_has_a_test(name: str) -> None:
    assert EXTENSIONS[name].must.keys() - FOUND.keys() == set()


def test_an_extension_that_is_complete_is_declared(manifest: Any) -> None:
    official, experimental = (manifest["extensions"][kind] for kind in ("official", "experimental"))
    declared = {extension["name"] for extension in [*official, *experimental]}
    of_servers = {name: each for name, each in EXTENSIONS.items() if each.of_servers}
    whole = {name for name, each in of_servers.items() if complete(each, FOUND)}
    assert declared == whole, "see Extension.manifest, and _CORE of django_ojs/http/manifest.py"
    for extension in official:
        assert extension["uri"] == f"urn:ojs:ext:{extension['name']}"
    for extension in experimental:
        assert extension["uri"] == f"urn:ojs:ext:experimental:{extension['name']}"
        assert extension["version"]


@pytest.mark.parametrize("name", CAPABILITIES)
def test_a_capability_is_true_when_what_it_needs_is_tested(manifest: Any, name: str) -> None:
    assert manifest["capabilities"].keys() == CAPABILITIES.keys()
    assert manifest["capabilities"][name] is (set(CAPABILITIES[name]) <= FOUND.keys())


def test_marks_are_found_wherever_they_stand(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_a.py").write_text(
        """
import pytest
pytestmark = [pytest.mark.slow, pytest.mark.requirement("A")]

@pytest.mark.requirement("B", "C")
class TestIt:
    @pytest.mark.requirement("D")
    def test_one(self): ...
    def helper(self): ...

async def test_two(): ...
"""
    )
    one, two = "tests/test_a.py::TestIt::test_one", "tests/test_a.py::test_two"
    assert marks(tmp_path / "tests") == {"A": [one, two], "B": [one], "C": [one], "D": [one]}

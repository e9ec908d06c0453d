"""A project that was made at a release migrates to this version: its schema, and its jobs.

Before the first release there is one migration, which is edited in place: then this version's own
dump stands for it, so that the way in which a release keeps and tries its database is tested.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from django_ojs.version import VERSION
from tests.release.database import DATABASES

ROOT = Path(__file__).parents[2]
RELEASES = sorted(path.stem for path in DATABASES.glob("*.sql"))


def run(what: str, path: Path) -> str:
    """Run the command; return what it says of an error, or nothing."""
    command = [sys.executable, "-m", "tests.release.database", what, str(path)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode in (0, 1)
    return done.stderr if done.returncode else ""


@pytest.mark.parametrize("release", RELEASES)
def test_the_database_of_a_release_is_migrated_to_this_version(release: str) -> None:
    assert run("check", DATABASES / f"{release}.sql") == ""


def test_a_release_keeps_its_database() -> None:
    assert (VERSION in RELEASES) == (not VERSION.startswith("0."))


def test_a_dump_is_restored_and_what_a_migration_would_miss_is_found(tmp_path: Path) -> None:
    path = tmp_path / "now.sql"
    assert run("dump", path) == ""
    assert run("check", path) == ""
    text = path.read_text()
    lines = [line for line in text.splitlines(keepends=True) if line.startswith("CREATE INDEX")]
    lost = next(line for line in lines if " ON " in line and "ojs_job" in line)
    path.write_text(text.replace(lost, ""))
    name = lost.split('"')[1]
    assert name in run("check", path)

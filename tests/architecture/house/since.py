"""What has changed behind a number since a commit, whose files are counted by the rules of now."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from io import BytesIO
from pathlib import Path

from tests.architecture.house.numbers import NUMBERS
from tests.architecture.imports import ROOT

#: What counts, and what it needs of a tree.
_RULES = ("scripts/house", "tests/__init__.py", "tests/architecture")


def difference(name: str, commit: str) -> tuple[list[str], list[str]]:
    """Return the lines of a number that are new since a commit, and those that are gone.

    What that commit has beside this branch does not count.
    """
    began = _git("merge-base", commit, "HEAD").decode().strip()
    before, now = Counter(items_of(name, began)), Counter(NUMBERS[name].count().items)
    return sorted((now - before).elements()), sorted((before - now).elements())


def items_of(name: str, commit: str) -> list[str]:
    """Return the lines of a number in the files of a commit."""
    with tempfile.TemporaryDirectory(prefix="ojs-house-") as folder:
        tree = Path(folder).resolve()
        packed = _git("archive", "--format=tar", commit)
        with tarfile.open(fileobj=BytesIO(packed)) as archive:
            archive.extractall(tree, filter="data")
        own_map = tree / "tests/architecture/house/numbers.toml"
        kept = own_map.read_text() if own_map.exists() else None
        for each in _RULES:
            _copy(ROOT / each, tree / each)
        if kept is not None:
            own_map.write_text(kept)
        done = subprocess.run(
            [sys.executable, "scripts/house", "--list", name],
            cwd=tree,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=True,
        )
        return done.stdout.splitlines()


def branched_from() -> str:
    """Return the commit at which this branch left `main`; on main itself, the one before HEAD."""
    for arguments in (("merge-base", "main", "HEAD"), ("rev-parse", "HEAD")):
        try:
            found = _git(*arguments).decode().strip()
        except subprocess.CalledProcessError:
            continue
        if arguments[0] == "rev-parse" or found != _git("rev-parse", "HEAD").decode().strip():
            return found
    raise AssertionError("HEAD is a commit")


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def _git(*arguments: str) -> bytes:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
    ).stdout

"""What is said of the versions of Python and Django is what `make matrix` tries."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def load() -> ModuleType:
    loader = SourceFileLoader("scripts_matrix", str(ROOT / "scripts/matrix"))
    spec = spec_from_loader("scripts_matrix", loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules[module.__name__] = module  # Its dataclasses look for it there.
    loader.exec_module(module)
    return module


MATRIX = load()


def number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


PYTHONS = sorted({python for python, _ in MATRIX.PAIRS}, key=number)
DJANGOS = sorted({django for _, django in MATRIX.PAIRS}, key=number)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize(
    ("prefix", "versions"),
    [("Programming Language :: Python :: ", PYTHONS), ("Framework :: Django :: ", DJANGOS)],
    ids=["Python", "Django"],
)
def test_the_classifiers_are_the_versions_that_are_tried(prefix: str, versions: list[str]) -> None:
    classifiers = [each.removeprefix(prefix) for each in PROJECT["classifiers"]]
    assert [each for each in classifiers if re.fullmatch(r"\d+\.\d+", each)] == versions


def test_the_oldest_versions_are_those_that_are_required() -> None:
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"
    assert PROJECT["dependencies"] == [f"Django>={DJANGOS[0]}"]


def test_the_pages_name_the_versions_that_are_tried() -> None:
    *others, last = DJANGOS
    djangos = f"{', '.join(others)} and {last}"
    pythons = f"{PYTHONS[0]} to {PYTHONS[-1]}"
    said = {
        "README.md": f"Python {pythons}; Django {djangos};",
        "docs/explanation/is-it-for-you.md": f"| Python, Django | {pythons}; {djangos},",
        "docs/reference/installation.md": f"| Python | {', '.join(PYTHONS)} |",
    }
    texts = {name: (ROOT / name).read_text() for name in said}
    assert [name for name, words in said.items() if words not in texts[name]] == []
    assert (
        "5.2 on each of these; 6.0 and 6.1 from Python 3.12 on"
        in texts["docs/reference/installation.md"]
    )
    assert {django: pythons_of(django) for django in DJANGOS} == {
        "5.2": PYTHONS,
        "6.0": PYTHONS[1:],
        "6.1": PYTHONS[1:],
    }


def pythons_of(django: str) -> list[str]:
    return [python for python, each in MATRIX.PAIRS if each == django]


def test_a_python_that_cannot_be_had_is_left_out_with_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = "Python 3.77 cannot be unpacked here: apt-get was not found; this needs Debian\n"

    def run(command: tuple[str, ...], **given: object) -> subprocess.CompletedProcess[str]:
        if command[0] == "scripts/unpack-python":
            return subprocess.CompletedProcess(command, 1, "", said)
        return subprocess.CompletedProcess(command, 0, "3.2 /python\n", "")

    monkeypatch.setattr(MATRIX.subprocess, "run", run)
    with pytest.raises(MATRIX.NoPythonError, match="apt-get was not found"):
        MATRIX.find_python("3.77")

"""The house has four floors, and a module imports only downwards."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.architecture.imports import PACKAGE, Import, imports, modules

# A part of the package and its floor. One that is not named here fails the test: decide first.
FLOORS = {
    "spec": 1,
    "version": 1,
    "conf": 2,
    "signals": 2,
    "models": 2,
    "storage": 2,
    "migrations": 2,
    "operations": 3,
    "client": 4,
    "context": 4,
    "contrib": 4,
    "handlers": 4,
    "options": 4,
    "registry": 4,
    "payloads": 4,
    "middleware": 3,
    "outbox": 4,
    "worker": 4,
    "management": 4,
    "http": 4,
    "admin": 4,
    "templatetags": 4,
}
# Django calls these, or they only name what others provide: they may see the whole house.
ROOF = {"", "apps", "checks"}


def part(module: str) -> str:
    return module.removeprefix(PACKAGE).removeprefix(".").partition(".")[0]


def complaints(root: Path | None = None) -> list[str]:
    found = modules() if root is None else modules(root)
    known = frozenset(found)
    said = []
    for module, path in found.items():
        if part(module) not in FLOORS and part(module) not in ROOF:
            said.append(f"{module} stands on no floor: add {part(module)!r} to FLOORS")
            continue
        said += [text for i in imports(module, path, known) if (text := judge(i))]
    return said


def judge(found: Import) -> str | None:
    where = f"{found.module}:{found.line} imports {found.target}"
    here = part(found.module)
    if found.target.split(".")[0] != PACKAGE:
        if here == "spec" and found.target.split(".")[0] not in sys.stdlib_module_names:
            return f"{where}: spec/ uses the standard library only"
        return None
    there = part(found.target)
    if here in ROOF:
        return None
    if there in ROOF:
        return f"{where}: a floor does not import the roof above it"
    if FLOORS.get(there, 0) > FLOORS[here]:
        return f"{where}: floor {FLOORS[here]} does not import floor {FLOORS[there]}"
    return None


def test_every_module_imports_only_downwards() -> None:
    assert not complaints(), "\n" + "\n".join(complaints())


@pytest.mark.parametrize(
    ("module", "line", "words"),
    [
        ("spec/envelope.py", "import django", "standard library only"),
        ("spec/envelope.py", "from ..models import Job", "floor 1 does not import floor 2"),
        (
            "storage/claims.py",
            "from django_ojs import operations",
            "floor 2 does not import floor 3",
        ),
        ("operations/ack.py", "def f():\n    import django_ojs.client", "floor 3 does not import"),
        ("client.py", "from django_ojs import enqueue", "does not import the roof"),
        ("attic.py", "", "stands on no floor"),
    ],
)
def test_an_import_upwards_is_named(tmp_path: Path, module: str, line: str, words: str) -> None:
    for name in (module, "__init__.py", "models/__init__.py", "operations/__init__.py"):
        path = tmp_path / PACKAGE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(line if name == module else "")
    said = complaints(tmp_path)
    assert len(said) == 1
    assert words in said[0]


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("operations/push.py", "from ..spec.ids import new_id"),
        ("worker/loop.py", "import django_ojs.operations.fetch"),
        ("apps.py", "from django_ojs import handlers"),
        ("spec/ids.py", "from . import times"),
    ],
)
def test_an_import_downwards_or_on_the_same_floor_is_fine(
    tmp_path: Path, module: str, line: str
) -> None:
    path = tmp_path / PACKAGE / module
    path.parent.mkdir(parents=True)
    path.write_text(line)
    assert complaints(tmp_path) == []

"""A dotted name in a comment or a docstring leads to code: `storage.keyset.pages` exists."""

from __future__ import annotations

import ast
import re
import tokenize
from functools import cache
from pathlib import Path

import django_ojs
from django_ojs.spec.published import EventType
from tests.cases import together

PACKAGE = Path(django_ojs.__file__).parent
#: A name that begins with one of these is read as that of a module.
HEADS = {
    each.stem
    for folder in (PACKAGE, PACKAGE / "extensions")
    for each in folder.iterdir()
    if each.suffix == ".py" or (each / "__init__.py").exists()
} - {"__init__", "tasks"} | {"django_ojs"}
FILES = sorted(each for each in PACKAGE.rglob("*.py") if "migrations" not in each.parts)
DOTTED = re.compile(r"`((?:\w+\.)+\w+)(?:\(\))?`")


@cache
def _defined(module: Path) -> set[str]:
    """Return what a module defines or imports, and what its classes have."""
    tree = ast.parse(module.read_text())
    names = {
        each.name for each in ast.walk(tree) if isinstance(each, (ast.ClassDef, ast.FunctionDef))
    }
    names |= {
        each.id
        for each in ast.walk(tree)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }
    return names | {
        alias.asname or alias.name
        for each in ast.walk(tree)
        if isinstance(each, (ast.Import, ast.ImportFrom))
        for alias in each.names
    }


def _leads_from(folder: Path, names: list[str]) -> bool:
    for at, name in enumerate(names):
        module = folder / f"{name}.py"
        if module.exists():
            return set(names[at + 1 :]) <= _defined(module)
        folder = folder / name
        if not folder.is_dir():
            own = folder.parent / "__init__.py"
            return at > 0 and own.exists() and set(names[at:]) <= _defined(own)
    return True


def _texts(file: Path) -> list[tuple[int, str]]:
    """Return the comments and docstrings, with their lines."""
    found, starts = [], True
    with file.open("rb") as opened:
        for token in tokenize.tokenize(opened.readline):
            if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and starts):
                found.append((token.start[0], token.string))
            starts = token.type in (
                tokenize.NEWLINE,
                tokenize.INDENT,
                tokenize.DEDENT,
                tokenize.NL,
                tokenize.COMMENT,
                tokenize.ENCODING,
            )
    return found


def references(file: Path) -> list[tuple[int, str]]:
    """Return the names of modules in the comments and docstrings of a file."""
    return [
        (line, name)
        for line, text in _texts(file)
        for name in DOTTED.findall(text)
        if name.split(".")[0] in HEADS and not name.endswith(".py") and name not in list(EventType)
    ]


def leads(name: str, file: Path) -> bool:
    """Say whether the name is found from the package, the extensions, or a folder of the file."""
    names = name.removeprefix("django_ojs.").split(".")
    above = [each for each in file.parents if each.is_relative_to(PACKAGE)]
    return any(_leads_from(each, names) for each in {PACKAGE, PACKAGE / "extensions", *above})


@together("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_a_dotted_name_leads_to_code(file: Path) -> None:
    lost = [f"{line}: {name}" for line, name in references(file) if not leads(name, file)]
    assert lost == []


def test_a_name_that_leads_nowhere_is_found() -> None:
    here = PACKAGE / "extensions" / "limits" / "extension.py"

    assert leads("storage.transitions", here)
    assert leads("django_ojs.storage.transitions", here)
    assert not leads("storage.no_such_module", here)
    assert not leads("storage.transitions.no_such_name", here)

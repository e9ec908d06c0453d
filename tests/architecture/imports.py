"""Read the imports of the package by its syntax, without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = "django_ojs"


@dataclass(frozen=True, kw_only=True)
class Import:
    """One import: the module it stands in, the module it names, the line.

    `name` is what it takes from that module, where it takes something.
    """

    module: str
    target: str
    line: int
    name: str = ""


def modules(root: Path = ROOT) -> dict[str, Path]:
    """Return every module of the package under `root`, by its dotted name."""
    found = {}
    for path in sorted((root / PACKAGE).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def tree(path: Path) -> ast.Module:
    """Return what a file says, parsed once for all tests."""
    return ast.parse(path.read_text())


def imports(
    module: str, path: Path, known: frozenset[str], *, for_types: bool = False
) -> Iterator[Import]:
    """Yield the imports of one module, inside functions too; `for_types`: and under TYPE_CHECKING.

    `from package import name` names `package.name` where that is a module of ours.
    """
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in _walk(tree(path), for_types=for_types):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module=module, target=alias.name, line=node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base]).rstrip(".")
            for alias in node.names:
                full = f"{base}.{alias.name}"
                target, name = (full, "") if full in known else (base, alias.name)
                yield Import(module=module, target=target, line=node.lineno, name=name)


def _walk(node: ast.AST, *, for_types: bool) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            continue  # No statement is inside of an expression.
        if (
            not for_types
            and isinstance(child, ast.If)
            and "TYPE_CHECKING" in ast.unparse(child.test)
        ):
            continue
        yield child
        yield from _walk(child, for_types=for_types)

"""Which test shows what: `@pytest.mark.requirement("L0-ENV-001")`, read from the sources.

Read, and not collected: a test that is skipped on one database still has its mark, and nothing has
to be imported.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
TESTS = Path(__file__).resolve().parents[1]


def marks(root: Path = TESTS) -> dict[str, list[str]]:
    """Return the tests of each requirement, as `tests/file.py::Class::test`."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(root.rglob("test_*.py")):
        source = path.read_text()
        if "mark.requirement" not in source:
            continue
        where = path.relative_to(root.parent).as_posix()
        module = ast.parse(source)
        for requirement, test in _of(module.body, where, _module_marks(module)):
            if test not in found[requirement]:
                found[requirement].append(test)
    return dict(found)


def _of(body: list[ast.stmt], where: str, above: list[str]) -> Iterator[tuple[str, str]]:
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            mine = [*above, *_named(node.decorator_list)]
            yield from _of(node.body, f"{where}::{node.name}", mine)
        elif isinstance(node, _FUNCTIONS) and node.name.startswith("test"):
            for requirement in [*above, *_named(node.decorator_list)]:
                yield requirement, f"{where}::{node.name}"


def _module_marks(module: ast.Module) -> list[str]:
    return [
        requirement
        for node in module.body
        if isinstance(node, ast.Assign)
        and any(isinstance(name, ast.Name) and name.id == "pytestmark" for name in node.targets)
        for requirement in _named(list(ast.walk(node.value)))
    ]


def _named(nodes: list[ast.AST] | list[ast.expr]) -> list[str]:
    return [
        argument.value
        for node in nodes
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.requirement"
        for argument in node.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]

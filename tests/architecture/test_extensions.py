"""The core and the doors find no extension: not by an import, a string, a model or a template.

`test_layers` has the imports of the core.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from django.apps import apps

from tests.architecture.imports import PACKAGE, imports, modules, tree
from tests.architecture.test_layers import NOT_CORE, within

ROOT = Path(__file__).parents[2]
TEMPLATES = ROOT / "django_ojs/templates"

#: What a person or another program comes in by.
DOORS = tuple(
    f"django_ojs.{name}"
    for name in ("http", "reports", "admin", "command_line", "management", "templatetags")
)
#: Templates of extensions that are no app of their own: they stand where Django looks for them.
OWNED = {
    "audit": ("audit_changes", "audit_rows", "audit_trail", "job_history"),
    "events": ("event_data", "events", "job_events", "queue_events"),
    "statistics": (
        *("chart", "job_type", "overview_charts", "overview_figures", "overview_types"),
        *("queue_charts", "queue_figures", "sparkline"),
    ),
}

_INCLUDED = re.compile(r"""{%\s*(?:include|extends)\s+["']django_ojs/admin/(\w+)\.html["']""")


def _short(module: str) -> str:
    return module.removeprefix("django_ojs.")


def _imports() -> Iterator[str]:
    found = modules()
    known = frozenset(found)
    for module, path in found.items():
        if within(module, DOORS):
            for each in imports(module, path, known, for_types=True):
                if within(each.target, ("django_ojs.extensions",)):
                    yield f"{_short(module)} imports {_short(each.target)}"


def _strings() -> Iterator[str]:
    """Yield the strings that name a module of an extension, and the models that are looked up."""
    theirs = {
        model.__name__.lower()
        for model in apps.get_models()
        if model.__module__.startswith("django_ojs.extensions.")
    }
    # It passes the names of the Python API on.
    beside = (PACKAGE, "django_ojs.apps", "django_ojs.not_installed", "django_ojs.extensions")
    for module, path in modules().items():
        is_core = not within(module, NOT_CORE) and module not in beside
        if not is_core and not within(module, DOORS):
            continue
        found = tree(path)
        texts = {
            id(node.value) for node in ast.walk(found) if isinstance(node, ast.Expr)
        }  # Docstrings.
        for node in ast.walk(found):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
                if id(node) not in texts and text.startswith("django_ojs.extensions."):
                    yield f"{_short(module)} names {_short(text)}"
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("get_model"):
                words = [each.value for each in node.args if isinstance(each, ast.Constant)]
                if words and str(words[-1]).rpartition(".")[2].lower() in theirs:
                    yield f"{_short(module)} looks up {words[-1]}"


def _templates() -> Iterator[str]:
    owners = {name: owner for owner, names in OWNED.items() for name in names}
    for path in (ROOT / "django_ojs/extensions").glob("*/templates/django_ojs/admin/*.html"):
        owners[path.stem] = path.relative_to(ROOT / "django_ojs/extensions").parts[0]
    for path in sorted(TEMPLATES.rglob("*.html")):
        name = path.stem if path.parent.name == "admin" else str(path.relative_to(TEMPLATES))
        for included in _INCLUDED.findall(path.read_text()):
            owner = owners.get(included)
            if owner is not None and owners.get(name) != owner:
                yield f"{name} includes {included} of {owner}"


def test_the_doors_import_no_extension() -> None:
    assert not list(_imports())


def test_no_string_of_the_core_or_a_door_names_an_extension() -> None:
    assert not list(_strings())


def test_no_template_of_the_core_includes_one_of_an_extension() -> None:
    assert all(
        (TEMPLATES / f"django_ojs/admin/{n}.html").exists() for o in OWNED.values() for n in o
    )
    assert not list(_templates())

"""The list of modules in docs/explanation/architecture.md is the tree of the package."""

from __future__ import annotations

import re

from tests.architecture.imports import PACKAGE, modules
from tests.docs.pages import ROOT

PAGE = ROOT / "docs/explanation/architecture.md"
_LINE = re.compile(r"- `([a-z_/]*)`: (.+)")


def test_the_page_lists_the_modules_of_the_package() -> None:
    _, _, text = PAGE.read_text().partition("\n## Modules\n")
    shown = {
        f"{folder.lstrip('/')}{name.strip()}"
        for folder, names in _LINE.findall(text.replace("\n  ", " "))
        for name in names.rstrip(".").split(",")
    }
    there = {
        path.relative_to(ROOT / PACKAGE).with_suffix("").as_posix()
        for path in modules().values()
        if path.name != "__init__.py"
    }

    assert shown == there

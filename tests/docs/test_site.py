"""The pages of the documentation site that are made from docstrings have every public name."""

from __future__ import annotations

import re

import django_ojs as ojs
from tests.docs.pages import ROOT

API = ROOT / "docs/api"
_DIRECTIVE = re.compile(r"^\.\. (?:auto\w+|py:data):: (?:django_ojs\.)?(\S+)$", re.MULTILINE)


def test_every_public_name_is_there() -> None:
    described = {
        name for page in API.glob("*.rst") for name in _DIRECTIVE.findall(page.read_text())
    }
    # The async twins are described with their functions, and the errors by their module.
    twins = {f"a{name}" for name in ojs.__all__}
    assert set(ojs.__all__) - twins - {"OJSError", "errors"} <= described
    assert {"spec.errors", "testing", "tasks"} <= described


def test_every_page_is_in_the_list() -> None:
    listed = re.findall(r"^   (\w+)$", (API / "index.rst").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(page.stem for page in API.glob("*.rst") if page.stem != "index")

"""The documentation site: `make docs` builds it from the pages as they stand in the repository.

The source folder is the repository's root, so that a link such as `../../CONTRIBUTING.md` leads to
the same page on a code host and on the site.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import django
from django.conf import settings
from sphinx.application import Sphinx

APPS = ("checkpoints", "cron", "limits", "outbox", "steps", "tenants", "webhooks", "workflows")
settings.configure(
    INSTALLED_APPS=[
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django_ojs",
        *(f"django_ojs.extensions.{name}" for name in APPS),
    ],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    USE_TZ=True,
)
django.setup()

import django_ojs  # noqa: E402 - after the settings, as all of Django

ROOT = Path(__file__).resolve().parents[1]
INDEX = "docs/index"

project = "django_ojs"
copyright = "the contributors of django_ojs"
release = version = django_ojs.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
root_doc = INDEX
include_patterns = [
    "docs/**.md",
    "docs/**.rst",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "example_project/workers/node/README.md",
]
# Folders that are not searched for pages.
exclude_patterns = [".*", "build", "dist", "django_ojs", "scripts", "tests", "var"]
templates_path = ["_templates"]

# GitHub's anchors, so that `page.md#heading` is checked here and works there.
myst_heading_anchors = 4

# `name` in a docstring is code.
default_role = "code"
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_use_type_comments = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
add_module_names = False
# The build needs no network, so names of Python and Django are not links; nor are internal types.
nitpick_ignore_regex = [
    ("py:.*", r"(?!django_ojs\.).*"),
    ("py:.*", r"django_ojs\.(handlers\.(Decorator|P|R)|tasks\.backend\.R)"),
    ("py:.*", r"django_ojs\.extensions\.cron\.schedules\.T"),
    ("py:.*", r"django_ojs\.options\.Options"),
    ("py:.*", r"django_ojs\.(storage\.claimed_job\.Claimed|testing\.expectation\.Task)"),
]
# A quotation over several lines has no prompt; tests/docs runs these blocks.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_title = f"django_ojs {version}"
html_copy_source = False
html_show_sphinx = False
html_additional_pages = {"index": "redirect.html"}
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True

#: Classes that users make. The others come from the package, and their parameters are internal.
CONSTRUCTED = {"RetryPolicy", "UniquePolicy", "Retry", "RateLimitExceeded", "Discard", "DeadLetter"}
#: What `django_ojs.spec.json.JSON` is at run time, with itself inside.
_JSON = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"

_SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_PAGE = re.compile(r"^- \[.*?\]\((\S+?)\.(?:md|rst)\)", re.MULTILINE)


def add_navigation(app: Sphinx, name: str, source: list[str]) -> None:
    """Make the lists of the index the navigation: a list on a code host, the sidebar here."""
    if name != INDEX:
        return
    for title, text in _SECTION.findall(source[0]):
        if pages := "\n".join(_PAGE.findall(text)):
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{pages}\n```\n"


def shorten_signature(
    app: Sphinx,
    what: str,
    name: str,
    obj: object,
    options: object,
    signature: str | None,
    returned: str | None,
) -> tuple[str | None, str | None]:
    """Write JSON for its long union, and no parameters of classes that only the package makes."""
    if what in ("class", "exception") and name.rpartition(".")[2] not in CONSTRUCTED:
        return signature and "", None
    return _with_json(signature), _with_json(returned)


def _with_json(text: str | None) -> str | None:
    while text and _JSON in text:
        text = text.replace(_JSON, "JSON")
    return text


def copy_pictures(app: Sphinx, error: Exception | None) -> None:
    """Copy the pictures of elements that Sphinx does not read, as they are for light and dark."""
    if error is None:
        shutil.copytree(ROOT / "docs/images", app.outdir / "docs/images", dirs_exist_ok=True)


def setup(app: Sphinx) -> None:
    app.connect("build-finished", copy_pictures)
    app.connect("autodoc-process-signature", shorten_signature)
    app.connect("source-read", add_navigation)

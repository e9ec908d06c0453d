"""The pages in other languages: each text is translated, and numbers of a chart are not."""

from __future__ import annotations

import gettext
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from django.template import base, defaulttags
from django.test import override_settings
from django.utils import translation
from django.utils.translation import trans_real

from django_ojs.operations import progress
from django_ojs.spec.progress import Report
from tests import factories
from tests.admin.test_pages import BASE
from tests.admin.users import root
from tests.browser.test_accessibility import incident

pytestmark = pytest.mark.django_db

LANGUAGE = "xx"
_READ = re.compile(r"title|alt|placeholder|label|aria-(label|valuetext)|data-(label|text-.*)")
#: Elements whose texts are the same in every language, or are not shown.
_CODE = {"code", "pre", "script", "style", "head"}
_LETTERS = re.compile(r"[^\W\d_]{2,}")


class Pseudo(gettext.NullTranslations):
    """A language in which each text is itself, in brackets."""

    def to_language(self) -> str:
        return LANGUAGE

    def gettext(self, message: str) -> str:
        return f"⟦{message.rpartition(trans_real.CONTEXT_SEPARATOR)[2]}⟧"

    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        return self.gettext(msgid1 if n == 1 else msgid2)


@pytest.fixture
def pseudo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Speak the language in brackets; values that a template shows are in brackets as well."""
    monkeypatch.setitem(trans_real._translations, LANGUAGE, Pseudo())
    for module in (base, defaulttags):
        monkeypatch.setattr(module, "render_value_in_context", _bracketed)
    with translation.override(LANGUAGE):
        yield


_render = base.render_value_in_context


def _bracketed(value: Any, context: Any) -> str:
    return f"⟦{_render(value, context)}⟧"


class _Unbracketed(HTMLParser):
    """Collects the texts of a page that are in no brackets; these may be around elements."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()
        self._depth = 0
        self._code = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._code += tag in _CODE
        for name, value in attrs:
            if _READ.fullmatch(name):
                assert value
                self._add(value, 0)

    def handle_endtag(self, tag: str) -> None:
        self._code -= tag in _CODE

    def handle_data(self, data: str) -> None:
        self._depth = self._add(data, self._depth)

    def _add(self, text: str, depth: int) -> int:
        outside = ""
        for character in text:
            depth += (character == "⟦") - (character == "⟧")
            outside += character if not depth else "⟧"
        if _LETTERS.search(outside) and not self._code:
            self.found.add(" ".join(outside.replace("⟧", " ").split()))
        return depth


#: Names of the scene, durations, and what is shown as it is typed, which no language changes.
_DATA = re.compile(
    r"\w+\.\w+|email|report|held|payments|default|gone|labels|weekdays|web-1|worker-a"
    r"|(in )?([\d.]+\s(ms|s|min|h|d) ?)+( ago)?|(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d UTC|[0-9a-f-]{36}"
    r"|\w+:\S+( \w[\w.]*:\S+)+"
    r"|Search"  # Django's own, as the text of a picture.
)


@pytest.mark.usefixtures("pseudo")
def test_each_text_of_the_pages_is_translated() -> None:
    client = root()
    found = {}
    for address in incident():
        reader = _Unbracketed()
        reader.feed(client.get(BASE + address).content.decode())
        texts = {text for text in reader.found if not _DATA.fullmatch(text)}
        if texts:
            found[address] = texts
    assert found == {}


class _Numbers(HTMLParser):
    """Collects the numbers that are read by the browser and by scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in _COORDINATES or name in ("aria-valuenow", "data-ojs-refresh"):
                self.found.append((name, value or ""))


_COORDINATES = {
    *("x", "y", "x1", "x2", "y1", "y2", "rx", "width", "height", "d", "points", "viewbox"),
    *("maxlength", "size", "colspan"),
}


@override_settings(USE_THOUSAND_SEPARATOR=True)
def test_numbers_that_programs_read_are_the_same_in_each_language() -> None:
    addresses = incident()
    claimed = factories.active("web-1", queue="held")
    progress.report(claimed.id, Report(progress=0.35), claim=factories.held(claimed))
    client = root()
    with translation.override("de"):
        pages = [client.get(BASE + each).content.decode() for each in addresses]
    reader = _Numbers()
    for page in pages:  # Not the icons of Django around it.
        reader.feed(page.partition('class="ojs-page"')[2].partition('id="footer"')[0])
    # A German number has a comma before its fraction, and a full stop between thousands.
    wrong = [each for each in reader.found if re.search(r",|\d\.\d{3}", each[1])]
    assert wrong == []
    assert {"d", "viewbox", "x1", "aria-valuenow"} <= {name for name, _ in reader.found}

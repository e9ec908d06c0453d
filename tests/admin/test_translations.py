"""The pages in other languages: each text is translated, and numbers of a chart are not."""

from __future__ import annotations

import gettext
import re
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest
from django.test import override_settings
from django.utils import translation
from django.utils.translation import trans_real

from django_ojs.models import ApiKey
from django_ojs.operations import progress
from django_ojs.spec.progress import Report
from tests import factories
from tests.admin.users import at, root
from tests.browser.test_accessibility import incident

pytestmark = [pytest.mark.django_db, pytest.mark.once]

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
    """Speak the language in brackets."""
    monkeypatch.setitem(trans_real._translations, LANGUAGE, Pseudo())
    with translation.override(LANGUAGE):
        yield


class _Unbracketed(HTMLParser):
    """Collects the texts of a page that are in no brackets; these may be around elements."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()
        self._depth = 0
        self._code = 0
        self._spans: list[bool] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        # What is said to be English: a problem has the same words on the command line and over
        # HTTP, and a row of them.
        is_english = ("lang", "en") in attrs
        assert tag == "span" or not is_english
        self._code += tag in _CODE or is_english
        if tag == "span":
            self._spans.append(is_english)
        for name, value in attrs:
            if _READ.fullmatch(name):
                assert value
                self._add(value, 0)

    def handle_endtag(self, tag: str) -> None:
        self._code -= tag in _CODE or (tag == "span" and self._spans.pop())

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


#: What no language changes: names of the scene and of the specification, values, times, errors and
#: schedules.
_DATA = re.compile(
    r"[0-9a-f]{8}-[0-9a-f-]{27}|[\d.]+\s[smhd]|\d\d:\d\d:\d\d UTC|MON-FRI|Europe/Paris"
    r"|(\w+\.)+\w+|\w+_\w+|\w+:\S+( \w[\w.]*:\S+)+"
    r"|\w+\.\*|No worker takes jobs from the queue \w+\."
    r"|every weekday at|is must be [^.]*\.|user@example\.com is neither .*"
    r"|\b(acme|billing|chain|default|email|eu|gone|held|labels|order|payments|report|root|web|weekdays"
    r"|shop|k3v9x0a2bq|worker-a|user|Boom|it broke|code: \S+ message|queues|state|release|changed"
    r"|concurrency|backpressure|admin|operator|producer|read|worker|block|reject|skip|discarded"
    r"|running|active|paused|True|int)\b"
    r"|Search"  # Django's own, as the text of a picture.
)


@pytest.mark.repeats
@pytest.mark.usefixtures("pseudo")
def test_each_text_of_the_pages_is_translated() -> None:
    addresses = incident()
    client = root()
    names = "|".join(ApiKey.objects.values_list("prefix", flat=True))
    found = {}
    for address in addresses:
        reader = _Unbracketed()
        # Not the other apps, which Django lists beside it.
        _, _, page = client.get(at(address)).content.decode().partition('<div id="content"')
        reader.feed("<div" + page.partition('<footer id="footer"')[0])
        texts = {_DATA.sub("", re.sub(names, "", text)) for text in reader.found}
        texts = {text for text in texts if _LETTERS.search(text)}
        if texts:
            found[address] = texts
    assert set().union(*found.values()) == set(), found


class _Numbers(HTMLParser):
    """Collects the numbers that are read by the browser and by scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in _COORDINATES or name in ("aria-valuenow", "data-ojs-refresh"):
                self.found.append((name, value or ""))


_GERMAN_TIME = re.compile(r"\d\d\.\d\d\.\d{4} \d\d:\d\d:\d\d UTC")
_ENGLISH_TIMES = (
    r"\b(January|February|March|May|June|July|October|December)\b",
    r"\d [ap]\.m\.",
    r">\s*\d{4}-\d\d-\d\d[ T]\d\d:",
)

_COORDINATES = {
    *("x", "y", "x1", "x2", "y1", "y2", "rx", "width", "height", "d", "points", "viewbox"),
    *("maxlength", "size", "colspan"),
}


@pytest.mark.repeats
@override_settings(USE_THOUSAND_SEPARATOR=True)
def test_numbers_that_programs_read_are_the_same_in_each_language() -> None:
    addresses = incident()
    claimed = factories.active("web-1", queue="held")
    progress.report(claimed.id, Report(progress=0.35), claim=factories.held(claimed))
    client = root()
    with translation.override("de"):
        pages = [client.get(at(each)).content.decode() for each in addresses]
    reader = _Numbers()
    for page in pages:  # Not the icons of Django around it.
        reader.feed(page.partition('class="ojs-page"')[2].partition('id="footer"')[0])
    # A German number has a comma before its fraction, and a full stop between thousands.
    wrong = [each for each in reader.found if re.search(r",|\d\.\d{3}", each[1])]
    assert wrong == []
    # Moments have the order of the language, and no page an English month or hour.
    titles = {title for page in pages for title in re.findall(r'<time [^>]*title="([^"]*)"', page)}
    assert titles
    assert [each for each in titles if not _GERMAN_TIME.fullmatch(each)] == []
    assert [name for name in _ENGLISH_TIMES if any(re.search(name, page) for page in pages)] == []
    assert {"d", "viewbox", "x1", "aria-valuenow"} <= {name for name, _ in reader.found}

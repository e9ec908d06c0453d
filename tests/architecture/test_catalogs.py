"""The catalogs of translations are complete, right in their form, and compiled.

`scripts/messages` collects the texts and compiles the catalogs.
"""

from __future__ import annotations

import gettext
import re
from collections import Counter
from pathlib import Path

import django
import pytest

from tests.architecture.catalogs import Entry, marked, read
from tests.architecture.imports import PACKAGE
from tests.docs.pages import ROOT

pytestmark = pytest.mark.once

CATALOGS = sorted((ROOT / PACKAGE / "locale").glob("*/LC_MESSAGES/django.po"))
_PLACEHOLDER = re.compile(r"%\(\w+\)[a-z]|%[a-z%]|\{\w*\}")
_TAG = re.compile(r"</?[a-z][^>]*>|&\w+;")
#: Texts that are formats of dates.
_FORMAT = re.compile(r"[DdFHiMmjNsTYy]([ :./-]+[DdFHiMmjNsTYy])+")


def wrong(entry: Entry, forms: int) -> list[str]:
    """Return what is wrong with the translations of an entry."""
    found = []
    if entry.flags & {"fuzzy"}:
        found.append("fuzzy")
    if len(entry.texts) != (forms if entry.plural else 1) or not all(entry.texts):
        found.append("not translated")
    sources = [entry.text, entry.plural or entry.text]
    for text in filter(None, entry.texts):
        for pattern, what in ((_PLACEHOLDER, "placeholders"), (_TAG, "markup")):
            allowed = [Counter(pattern.findall(source)) for source in sources]
            if Counter(pattern.findall(text)) not in allowed:
                found.append(what)
        # A quotation mark ends the value of an attribute in which the text may be.
        if _TAG.sub("", text).count('"') > _TAG.sub("", entry.text).count('"'):
            found.append("quotation marks")
        if [text[:1].isspace(), text[-1:].isspace()] != [
            entry.text[:1].isspace(),
            entry.text[-1:].isspace(),
        ]:
            found.append("space at an end")
        if _FORMAT.fullmatch(entry.text) and not _FORMAT.fullmatch(text.replace(r"\.", ".")):
            found.append("format of a date")
    return found


def plural_forms(header: Entry) -> int:
    match = re.search(r"^Plural-Forms: nplurals=(\d);", header.texts[0], re.MULTILINE)
    assert match
    return int(match[1])


@pytest.mark.parametrize("path", CATALOGS, ids=lambda path: path.parts[-3])
def test_a_catalog_is_complete_and_compiled(path: Path) -> None:
    assert "#~" not in path.read_text()  # An obsolete entry.
    header, *entries = read(path)
    forms = plural_forms(header)
    problems = {entry.key: wrong(entry, forms) for entry in entries}
    assert {key: found for key, found in problems.items() if found} == {}

    texts = marked(ROOT / PACKAGE)
    known = {(entry.context, entry.text) for entry in entries}
    assert {key: texts[key] for key in texts.keys() - known} == {}
    assert known - texts.keys() == set()

    with path.with_suffix(".mo").open("rb") as file:
        compiled = gettext.GNUTranslations(file)
    for entry in entries:
        key = f"{entry.context}\x04{entry.text}" if entry.context else entry.text
        for number, text in enumerate(entry.texts):
            stored = compiled._catalog[(key, number) if entry.plural else key]  # type: ignore[attr-defined]
            assert stored == text


@pytest.mark.parametrize("path", CATALOGS, ids=lambda path: path.parts[-3])
def test_a_word_of_django_keeps_its_translation(path: Path) -> None:
    """A catalog of an app counts on the whole site: another word for *Save* changes each form."""
    theirs = {}
    for name in ("conf", "contrib/admin", "contrib/auth"):
        place = Path(django.__file__).parent / name / "locale" / Path(*path.parts[-3:])
        theirs |= {entry.key: entry.texts for entry in read(place)}
    _, *entries = read(path)
    assert {e.key: e.texts for e in entries if theirs.get(e.key, e.texts) != e.texts} == {}


def test_a_wrong_translation_is_found() -> None:
    plural = Entry(text="%(n)s job", plural="%(n)s jobs", texts=["ein Job", "%(n)s Jobs"])
    assert wrong(plural, 2) == ["placeholders"]
    assert wrong(Entry(text="<b>a</b> %(x)s", texts=["<i>a</i> %(y)s"]), 2) == [
        *("placeholders", "markup")
    ]
    assert wrong(Entry(text="Delete", texts=[""]), 2) == ["not translated"]
    assert wrong(Entry(text="Delete", texts=['"Weg" '], flags={"fuzzy"}), 2) == [
        *("fuzzy", "quotation marks", "space at an end")
    ]
    assert wrong(Entry(text="d M H:i:s", texts=["d. F, H Uhr"]), 2) == ["format of a date"]
    assert wrong(Entry(text="d M H:i:s", texts=["j. M H:i:s"]), 2) == []


def test_the_marked_texts_of_templates_and_modules_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '{% load i18n %}{% translate "one" context "c" %}{{ x|default:_("two") }}'
        "{% blocktranslate count n=x %}{{ n }} it's{% plural %}{{ n }} are{% endblocktranslate %}"
    )
    (tmp_path / "b.py").write_text(
        "from django.utils import translation\n"
        "from django.utils.translation import gettext as _, npgettext\n"
        "x = _('two')\nnpgettext('c', 'three', 'threes', 3)\ntranslation.gettext_lazy('four')\n"
        "gettext('of another module')\n"
    )
    assert marked(tmp_path) == {
        ("c", "one"): {"a.html"},
        ("", "two"): {"a.html", "b.py"},
        ("", "%(n)s it's"): {"a.html"},
        ("c", "three"): {"b.py"},
        ("", "four"): {"b.py"},
    }
    assert marked(ROOT / PACKAGE)["state of a worker", "stale"] == {"worker_state.html"}

"""Each text that a template or a script of the admin shows is marked for translation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest
from django.template.base import Lexer, Token, TokenType
from django.utils.text import smart_split

from tests.architecture.imports import PACKAGE
from tests.docs.pages import ROOT

TEMPLATES = ROOT / PACKAGE / "templates"
SCRIPTS = ROOT / PACKAGE / "static"

#: Attributes whose values people read, or hear; and those from which scripts take their texts.
_SHOWN = re.compile(
    r"title|alt|placeholder|label|aria-(label|valuetext|description)|data-(label|text-.*)"
)
#: What is the same in every language: code, and what is shown as it is typed.
_CODE = {"code", "pre", "script", "style"}
_EXAMPLES = {
    "state:retryable queue:email type:email.* args.user_id:42 created:<2h",
    "actor:ann action:queue.* object:queue/email day:2026-01-31",
}
_LETTERS = re.compile(r"[^\W\d_]{2,}")
#: Names of classes of the stylesheet.
_CLASSES = re.compile(r"{% block bodyclass %}.*?{% endblock %}")

#: Tags whose literals are names, not texts. Of the others the positions of names are listed.
_NAMES_ONLY = {
    *("extends", "load", "block", "url", "static", "ojs_url", "querystring", "if", "elif", "with"),
    *("cycle", "get_current_timezone", "for"),
}
_NAMES_AT = {"include": {1}, "ojs_link": {1}, "ojs_time": {2}}
#: Filters whose arguments people read; those of the others are formats and names.
_SHOWN_ARGUMENT = re.compile(r"\|(?:default|default_if_none|yesno|join|add):([\"'][^\"']*[\"'])")
_LITERAL = re.compile(r"^(?:\w+=)?([\"'])(.*?)\1")

#: A literal of a script that begins as a sentence does, but for keys of the keyboard.
_SCRIPT_LITERAL = re.compile(r"""(?<!\w)(["'`])\s*([A-Z][^"'`]*)\1""")
_KEYS = {"ArrowDown", "ArrowUp", "Escape", "Enter", "Tab"}


class _Text(HTMLParser):
    """Collects the texts of a template whose tags have been taken out."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._code = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._code += tag in _CODE
        values = dict(attrs)
        for name, value in values.items():
            is_button = tag == "input" and name == "value" and values.get("type") == "submit"
            if value and (is_button or _SHOWN.fullmatch(name)) and value not in _EXAMPLES:
                self._add(value)

    def handle_endtag(self, tag: str) -> None:
        self._code -= tag in _CODE

    def handle_data(self, data: str) -> None:
        if not self._code:
            self._add(data)

    def _add(self, text: str) -> None:
        if _LETTERS.search(text):
            self.found.append(" ".join(text.split()))


def _literals(token: Token) -> Iterator[str]:
    """Return the literals of a tag or variable that are shown and not marked."""
    yield from (each[1:-1] for each in _SHOWN_ARGUMENT.findall(token.contents))
    if token.token_type is TokenType.BLOCK:
        name, *rest = smart_split(token.contents)
        if name in _NAMES_ONLY:
            return
        for position, word in enumerate(rest, 1):
            match = _LITERAL.match(word)
            if match and position not in _NAMES_AT.get(name, ()):
                yield match[2]


def unmarked(source: str) -> list[str]:
    """Return the texts of a template outside of the tags that translate."""
    rest: list[str] = []
    found: list[str] = []
    inside = False
    for token in Lexer(_CLASSES.sub("", source)).tokenize():
        name = token.contents.split(maxsplit=1)[0] if token.contents.split() else ""
        if token.token_type is TokenType.BLOCK and name in ("blocktranslate", "endblocktranslate"):
            inside = name == "blocktranslate"
        elif token.token_type is TokenType.TEXT and not inside:
            rest.append(token.contents)
        elif token.token_type is TokenType.VAR or token.token_type is TokenType.BLOCK:
            rest.append(
                "\N{OBJECT REPLACEMENT CHARACTER}" if not name.startswith("translate") else ""
            )
            if not inside and name != "translate":
                found += [text for text in _literals(token) if _LETTERS.search(text)]
            # The ending of a plural differs between languages, and some have more than two.
            if "|pluralize" in token.contents:
                found.append(token.contents)
    parser = _Text()
    parser.feed("".join(rest))
    parser.close()
    return found + parser.found


@pytest.mark.once
def test_each_text_of_a_template_is_marked() -> None:
    found = {path.name: unmarked(path.read_text()) for path in TEMPLATES.rglob("*.html")}
    assert len(found) > 50
    assert {name: texts for name, texts in found.items() if texts} == {}


@pytest.mark.once
def test_the_scripts_take_their_texts_from_the_page() -> None:
    source = "\n".join(path.read_text() for path in SCRIPTS.rglob("*.js"))
    source = re.sub(r"/\*.*?\*/|^\s*//.*?$|; //.*?$", "", source, flags=re.S | re.M)
    assert {literal for _, literal in _SCRIPT_LITERAL.findall(source)} <= _KEYS
    page = (TEMPLATES / "django_ojs/admin/script_texts.html").read_text()
    given = {
        "text" + "".join(map(str.capitalize, name.split("-")))
        for name in re.findall(r"\bdata-text-([a-z-]+)=", page)
    }
    assert set(re.findall(r"\.(text(?!Content)[A-Z]\w*)", source)) == given


@pytest.mark.once
def test_a_text_that_is_not_marked_is_found() -> None:
    source = """
        {% load i18n %}<h1 title="One">{% translate "marked" %} two {{ n|default:"three" }}</h1>
        <p>{{ n }} job{{ n|pluralize }} <code>code</code> {% firstof n "four" %}</p>
        {% url "name" %}<input type="submit" value="five"><a rel="x y">{% translate "marked" %}</a>
        {% include "a.html" with text="six" other=_("marked") %}{% ojs_link "job" key "seven" %}
        {% blocktranslate with name="given" %}marked <b>{{ name }}</b>{% endblocktranslate %}
    """
    words = [re.sub(r"\W", "", text) for text in unmarked(source)]
    assert words == ["three", "npluralize", "four", "six", "seven", "One", "two", "job", "five"]
    assert _SCRIPT_LITERAL.findall(
        "button.textContent = `Copied`; x = \" On this\"; y = 'aria-label'"
    )

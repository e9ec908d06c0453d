"""Each text that a template or a script of the admin shows is marked for translation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from django.template.base import Lexer, Token, TokenType
from django.utils.text import smart_split

from tests.architecture.imports import PACKAGE
from tests.docs.pages import ROOT

TEMPLATES = ROOT / PACKAGE / "templates"
SCRIPTS = ROOT / PACKAGE / "static"

#: Attributes whose values people read, or hear; and those from which scripts take their texts.
_SHOWN = re.compile(r"title|alt|placeholder|label|aria-(label|valuetext|description)|data-(label|text-.*)")
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
            rest.append("\N{OBJECT REPLACEMENT CHARACTER}" if not name.startswith("translate") else "")
            if not inside and name != "translate":
                found += [text for text in _literals(token) if _LETTERS.search(text)]
            # The ending of a plural differs between languages, and some have more than two.
            if "|pluralize" in token.contents:
                found.append(token.contents)
    parser = _Text()
    parser.feed("".join(rest))
    parser.close()
    return found + parser.found


def _ids(path: Path) -> str:
    return path.name


@pytest.mark.once
@pytest.mark.parametrize("path", sorted(TEMPLATES.rglob("*.html")), ids=_ids)
def test_each_text_of_a_template_is_marked(path: Path) -> None:
    assert unmarked(path.read_text()) == []

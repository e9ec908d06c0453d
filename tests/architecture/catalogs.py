"""Catalogs of translations, and the texts that the package marks, without GNU gettext."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from django.utils.translation.template import templatize

#: A context (or ""), a text, and its plural (or "").
Key = tuple[str, str, str]

#: The functions of Django that mark a text, with the positions of context, text and plural.
_FUNCTIONS = {
    "gettext": (None, 0, None),
    "ngettext": (None, 0, 1),
    "pgettext": (0, 1, None),
    "npgettext": (0, 1, 2),
}
_LITERAL = r"""u?(?:'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")"""
#: A call as Django's `templatize` writes it.
_CALL = re.compile(rf"\b(_|n?p?gettext)\(\s*({_LITERAL}(?:\s*,\s*{_LITERAL})*)")


@dataclass(kw_only=True)
class Entry:
    """An entry of a catalog. `texts` has more than one translation for a plural."""

    context: str = ""
    text: str = ""
    plural: str = ""
    texts: list[str] = field(default_factory=list)
    flags: set[str] = field(default_factory=set)

    @property
    def key(self) -> Key:
        return self.context, self.text, self.plural


def read(path: Path) -> list[Entry]:
    """Read a .po file without its obsolete entries; the header is the entry of the empty text."""
    blocks = re.split(r"\n\s*\n", path.read_text().strip())
    return [_entry(block) for block in blocks if "#~" not in block]


def _entry(block: str) -> Entry:
    entry = Entry()
    name = ""
    for line in block.splitlines():
        if line.startswith("#,"):
            entry.flags |= {flag.strip() for flag in line[2:].split(",")}
        if line.startswith("#"):
            continue
        match = re.match(r'(msgctxt|msgid_plural|msgid|msgstr(?:\[\d\])?) (?=")', line)
        if match:
            name, line = match[1], line[match.end() :]
            if name.startswith("msgstr"):
                entry.texts.append("")
        value = str(ast.literal_eval(line))
        if name.startswith("msgstr"):
            entry.texts[-1] += value
        else:
            attribute = {"msgctxt": "context", "msgid": "text", "msgid_plural": "plural"}[name]
            setattr(entry, attribute, getattr(entry, attribute) + value)
    return entry


def marked(package: Path) -> dict[tuple[str, str], set[str]]:
    """Return the texts that a package marks, each with its context and the files it is in."""
    found: dict[tuple[str, str], set[str]] = {}
    for path in [*package.rglob("*.py"), *package.rglob("*.html"), *package.rglob("*.txt")]:
        source = path.read_text()
        for context, text, _ in _in_python(source) if path.suffix == ".py" else _in_html(source):
            found.setdefault((context, text), set()).add(path.name)
    return found


def _key(kind: str, literals: list[str]) -> Key:
    context, text, plural = _FUNCTIONS[kind]
    return (
        "" if context is None else literals[context],
        literals[text],
        "" if plural is None else literals[plural],
    )


def _in_html(source: str) -> Iterator[Key]:
    for name, literals in _CALL.findall(templatize(source)):
        values = [ast.literal_eval(each) for each in re.findall(_LITERAL, literals)]
        yield _key("gettext" if name == "_" else name, values)


def _in_python(source: str) -> Iterator[Key]:
    if not re.search(r"django\.utils\.translation|django\.utils import", source):
        return
    names = {}
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "django.utils.translation":
            names |= {each.asname or each.name: each.name for each in node.names}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Attribute):  # translation.gettext(...)
            name = node.func.attr
        else:
            name = names.get(node.func.id, "") if isinstance(node.func, ast.Name) else ""
        kind = name.removesuffix("_lazy").removesuffix("_noop")
        if kind in _FUNCTIONS:
            values = [getattr(each, "value", None) for each in node.args]
            key = _key(kind, values) if values else ()
            if key and all(isinstance(each, str) for each in key):  # Not a variable.
                yield key

"""No text has a vague or a second word for one meaning, no two public classes have one name."""

from __future__ import annotations

import ast
import re
from collections import defaultdict

from tests.architecture.imports import modules, tree
from tests.docs.pages import PAGES, ROOT, name_of

#: Expressions that name no process, component or technical effect, or are a second word for one
#: meaning, and what to write.
VAGUE_PHRASES = {
    r"whoever|whomever": "the client, the caller, the operator",
    r"somebody|nobody|anybody|everybody": "the component: a worker, a client, an operator",
    r"in a circle": "deadlock",
    r"(?:in|at) (?:its|his|their|the) hands?": "in flight; holding the lock",
    r"no hand free": "no free thread",
    r"interpreter's lock": "GIL",
    r"by its own word": "as it reports",
    r"the house": "the package",
    # The operating system says "connection refused".
    r"(?<!connection )(?:refuse[sd]?|refusing|refusals?)": "reject",
}

#: Lines with a value that clients receive.
ON_THE_WIRE = {'FULL_ACCESS = Access(name="anybody", scopes=frozenset(Scope))'}

#: Names of classes that Django looks up by their name, and of the interface of Celery.
CONVENTIONAL_NAMES = {"Command", "Meta", "Migration", "Retry", "Task"}

_PHRASES = [
    (re.compile(rf"\b(?:{text})\b", re.IGNORECASE), term) for text, term in VAGUE_PHRASES.items()
]
_ANY_PHRASE = re.compile(rf"\b(?:{'|'.join(VAGUE_PHRASES)})\b", re.IGNORECASE)
_TEXTS = sorted(
    path
    for suffix in ("*.py", "*.sql", "*.html", "*.js", "*.css", "*.yaml")
    for path in (ROOT / "django_ojs").rglob(suffix)
)


def test_no_two_public_classes_have_the_same_name() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for module, path in modules().items():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(f"{module}:{node.lineno}")
    repeated = {name: places for name, places in found.items() if len(places) > 1}

    assert repeated.keys() <= CONVENTIONAL_NAMES, repeated
    assert "Meta" in repeated, "no class was found"


def test_no_text_has_a_vague_phrase() -> None:
    assert len(_TEXTS) > 400
    found = [
        f"{name_of(path)}:{number}: {match[0]!r}; write {term}"
        for path in (*_TEXTS, *PAGES)
        if _ANY_PHRASE.search(text := path.read_text())
        for number, line in enumerate(text.splitlines(), 1)
        for phrase, term in _PHRASES
        if (match := phrase.search(line)) and line.strip() not in ON_THE_WIRE
    ]

    assert not found, "\n" + "\n".join(found)


def test_a_vague_phrase_is_found() -> None:
    line = "# Whoever misses it polls, and somebody else waits in a circle."

    assert [bool(phrase.search(line)) for phrase, _ in _PHRASES][:3] == [True, True, True]

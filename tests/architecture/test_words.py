"""The package uses the terms of the glossary, each with one meaning; retired names stay out."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

from tests.architecture.imports import modules, tree
from tests.docs.pages import PAGES, ROOT, name_of

#: Names of modules that needed their docstring to be understood, and the names that replaced them.
RETIRED_MODULES = {
    "accept": "admission",
    "aging": "rollup_compaction",
    "answers": "responses",
    "asked": "confirmation",
    "bell": "wake_event",
    "board": "queue_overview",
    "bulk_orders": "bulk_actions",
    "discretion": "search_access",
    "finisher": "completer",
    "forget": "removal",
    "gauge": "claim_sizer",
    "guards": "ssrf",
    "intake": "dispatcher",
    "keys": "api_keys",
    "known": "status",
    "lately": "rollup_queries",
    "machine": "state_strip",
    "moves": "bulk_step",
    "overrun": "timeouts",
    "patience": "query_timeout",
    "place": "cursor",
    "positions": "commit_order",
    "problems": "exceptions",
    "pulse": "heartbeat",
    "qualifiers": "search_query",
    "reading": "raw_queries",
    "recent": "rollup_queries",
    "report": "job_log",
    "room": "backpressure",
    "runs": "timeline, in_flight",
    "selection": "job_filter",
    "sources": "parameters",
    "strict": "json",
    "tell": "publish",
    "tied": "caller_database",
    "timer": "promotion",
    "totals": "all_time",
    "waiting": "long_poll",
    "wakeup": "notify",
    "walk": "listing",
    "words": "formatting",
}

#: Names of classes, functions and parameters, and the terms that replaced them.
RETIRED_NAMES = {
    "Aside": "Offloader",
    "Bell": "WakeEvent",
    "Chore": "",
    "Finisher": "Completer",
    "Gauge": "ClaimSizer",
    "Hand": "InFlight",
    "Intake": "Dispatcher",
    "Parcel": "OutboxItem",
    "Passing": "DueCheck",
    "Patience": "WaitPolicy",
    "Pulse": "Heartbeat",
    "Verdict": "Outcome",
    "Way": "IndexScan",
    "aside": "offloader",
    "hopeless": "can_never_fit",
    "lost_a_race": "is_contention_error",
    "patience": "wait_policy, timeout",
    "take_turn": "lock_queue",
    "take_turns": "an advisory lock, by its subject",
    "tidy": "vacuum_counts",
    "told": "published, logged",
}

#: Expressions that name no process, component or technical effect, or are a second word for one
#: meaning, and what to write.
RETIRED_PHRASES = {
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
    (re.compile(rf"\b(?:{text})\b", re.IGNORECASE), term) for text, term in RETIRED_PHRASES.items()
]
_ANY_PHRASE = re.compile(rf"\b(?:{'|'.join(RETIRED_PHRASES)})\b", re.IGNORECASE)
_TEXTS = sorted(
    path
    for suffix in ("*.py", "*.sql", "*.html", "*.js", "*.css", "*.yaml")
    for path in (ROOT / "django_ojs").rglob(suffix)
)


def test_no_module_has_a_retired_name() -> None:
    found = {
        name: RETIRED_MODULES[stem]
        for name in modules()
        if (stem := name.rpartition(".")[2]) in RETIRED_MODULES
    }

    assert found == {}, "these modules have a retired name; the new one stands beside it"


def test_no_definition_has_a_retired_name() -> None:
    found = [
        f"{name}:{line}: {word}, now {RETIRED_NAMES[word] or 'something plainer'}"
        for name, path in modules().items()
        for word, line in _defined(tree(path))
        if word in RETIRED_NAMES
    ]

    assert not found, "\n" + "\n".join(found)


def _defined(parsed: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(parsed):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name.lstrip("_"), node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg.lstrip("_"), node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id.lstrip("_"), node.lineno


def test_no_two_public_classes_have_the_same_name() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for module, path in modules().items():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(f"{module}:{node.lineno}")
    repeated = {name: places for name, places in found.items() if len(places) > 1}

    assert repeated.keys() <= CONVENTIONAL_NAMES, repeated
    assert "Meta" in repeated, "no class was found"


def test_no_text_has_a_retired_phrase() -> None:
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


def test_a_retired_phrase_is_found() -> None:
    line = "# Whoever misses it polls, and somebody else waits in a circle."

    assert [bool(phrase.search(line)) for phrase, _ in _PHRASES][:3] == [True, True, True]

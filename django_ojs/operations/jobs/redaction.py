"""Redaction of what jobs carry: `OJS["ADMIN_REDACT"]` names members whose values are hidden.

`*` hides everything.
"""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final

from django_ojs import hooks
from django_ojs.conf import settings

#: Shown in place of a value.
HIDDEN: Final = "\N{BULLET}" * 5

_MAX_DEPTH: Final = 100


def redacted(value: Any) -> Any:
    """Return a JSON value with the members hidden that the settings name, in any case."""
    names = _names()
    return _redacted(value, names, _MAX_DEPTH) if names else value


def redacted_args(args: Any, parameters: Sequence[str]) -> Any:
    """Return the arguments of a job, with what the settings name replaced by HIDDEN.

    `parameters` are the names of its handler's parameters, because an argument of Python code has
    no name where it is stored.
    """
    shown, names = redacted(args), _names()
    if not isinstance(shown, list):
        return shown
    hidden = [name.casefold() in names for name in parameters[: len(shown)]]
    return [
        HIDDEN if is_hidden else arg
        for arg, is_hidden in zip_longest(shown, hidden, fillvalue=False)
    ]


def hides(name: str) -> bool:
    """Return whether members of this name are hidden."""
    return not _names().isdisjoint(("*", name))


def redacted_key(key: str, *, may_see: bool) -> str:
    """Return a limit key in which the arguments that the settings name are hidden.

    Without `may_see`, all arguments are hidden. The extension for limits knows which parts are
    arguments, unless another program made the key, or it was made for one enqueue.
    """
    names = _names()
    may_see = may_see and "*" not in names
    if may_see and not names:
        return key

    def is_hidden(name: str) -> bool:
        return not may_see or name.casefold() in names

    found = hooks.hide_in_key(key, is_hidden, HIDDEN)
    if found is None:
        return key if may_see else HIDDEN
    return found


def with_redacted_key(limits: Any, *, may_see: bool) -> Any:
    """Return the `rate_limit` of a job, with its key as `redacted_key` returns it."""
    if not isinstance(limits, Mapping) or not isinstance(limits.get("key"), str):
        return limits
    return {**limits, "key": redacted_key(limits["key"], may_see=may_see)}


def _names() -> frozenset[str]:
    return frozenset(name.casefold() for name in settings().admin_redact)


def _redacted(value: Any, names: frozenset[str], depth: int) -> Any:
    if "*" in names or not depth:
        return HIDDEN
    if isinstance(value, Mapping):
        return {
            key: HIDDEN if str(key).casefold() in names else _redacted(member, names, depth - 1)
            for key, member in value.items()
        }
    if isinstance(value, list | tuple):
        return [_redacted(item, names, depth - 1) for item in value]
    return value

"""Redaction of what jobs carry: `OJS["ADMIN_REDACT"]` names members whose values are hidden.

`*` hides everything.
"""

from collections.abc import Mapping
from typing import Any, Final

from django_ojs.conf import settings

#: Shown in place of a value.
HIDDEN: Final = "\N{BULLET}" * 5

_MAX_DEPTH: Final = 100


def redacted(value: Any) -> Any:
    """Return a JSON value with the members hidden that the settings name, in any case."""
    names = frozenset(name.casefold() for name in settings().admin_redact)
    return _redacted(value, names, _MAX_DEPTH) if names else value


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

"""Who sees arguments, results and errors, and which parts of them are redacted.

Seeing them is a permission of its own. `OJS["ADMIN_REDACT"]` names object members whose values are
hidden from every user; `*` hides everything.
"""

from collections.abc import Mapping
from typing import Any, Final

from django.http import HttpRequest

from django_ojs.conf import settings

#: Shown in place of a value.
HIDDEN: Final = "\N{BULLET}" * 5

_MAX_DEPTH: Final = 100


def has_permission(request: HttpRequest) -> bool:
    """Return whether the user may see arguments, results and backtraces."""
    user: Any = request.user
    return bool(user.has_perm("django_ojs.view_payload_job"))


def may_see(request: HttpRequest) -> bool:
    """Return whether there is anything that the user may see, after redaction."""
    return "*" not in settings().admin_redact and has_permission(request)


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

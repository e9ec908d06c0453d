"""What of arguments, results and errors is shown, and to whom.

Seeing them is a permission of its own. Beyond it, `OJS["ADMIN_REDACT"]` names members of objects
whose values nobody sees here; `*` is all of them.
"""

from collections.abc import Mapping
from typing import Any, Final

from django.http import HttpRequest

from django_ojs.conf import settings

#: What is shown in place of a value.
HIDDEN: Final = "\N{BULLET}" * 5

_DEEPEST: Final = 100


def may_see(request: HttpRequest) -> bool:
    """Say whether the user may see arguments, results and backtraces."""
    user: Any = request.user
    return "*" not in settings().admin_redact and user.has_perm("django_ojs.view_payload_job")


def redacted(value: Any) -> Any:
    """Return a JSON value without what the settings hide, whatever its letters' case."""
    names = frozenset(name.casefold() for name in settings().admin_redact)
    return _redacted(value, names, _DEEPEST) if names else value


def _redacted(value: Any, names: frozenset[str], deep: int) -> Any:
    if "*" in names or not deep:
        return HIDDEN
    if isinstance(value, Mapping):
        return {
            key: HIDDEN if str(key).casefold() in names else _redacted(each, names, deep - 1)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_redacted(each, names, deep - 1) for each in value]
    return value


__all__ = ["HIDDEN", "may_see", "redacted"]

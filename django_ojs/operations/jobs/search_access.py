"""What a search may look in: a search that finds a job reveals what the job carries.

So a user without the permission to see payloads cannot search in them, and no user searches in what
`OJS["ADMIN_REDACT"]` hides.
"""

from collections.abc import Callable, Collection, Iterable

from django_ojs.conf import settings
from django_ojs.hooks import registry
from django_ojs.operations.jobs.search_query import Search
from django_ojs.storage.dialects.json_contains import JSONMatch

_NO_PERMISSION = "You need the permission to see payloads to search in args, meta or error."
_REDACTED = "This site hides what you search in args, meta or error, so it cannot be searched."


def permitted(
    search: Search, *, payload: bool, positions: Callable[[str], Iterable[tuple[str, int]]]
) -> Search:
    """Return the search, or one without a filter if the user must not use one of its conditions.

    `payload`: whether the user may see what jobs carry. `positions`: see `JobFilter.located`.
    """
    which = search.filter
    if which is None:
        return search
    errors = []
    known = (registry.qualifiers.get(name) for name, _ in which.by_extensions)
    reads_payload = any(each is not None and each.reads_payload for each in known)
    reads_error = which.error is not None or which.message is not None
    if not payload and (which.held or reads_error or reads_payload):
        errors.append(_NO_PERMISSION)
    names = frozenset(name.casefold() for name in settings().admin_redact)
    is_error_redacted = reads_error and bool(names & {"*", "message"})
    hidden = {each for name in settings().admin_redact for each in positions(name)}
    if which.type is not None and not which.type.endswith("*"):
        hidden = {(type, index) for type, index in hidden if type == which.type}
    indexes = {str(index) for _type, index in hidden}
    if is_error_redacted or any(_is_redacted(held, names, indexes) for held in which.held):
        errors.append(_REDACTED)
    return Search(filter=None if errors else which.located(positions), errors=errors)


def _is_redacted(held: JSONMatch, names: frozenset[str], indexes: Collection[str]) -> bool:
    """Return whether a condition is about a hidden member, or about a hidden argument.

    `indexes` are the places of the hidden arguments.
    """
    if "*" in names or not names.isdisjoint(name.casefold() for name in held.path):
        return True
    first = held.path[0].lstrip("0") or "0" if held.has_index else ""
    is_argument = held.column == "args" and (not held.path or first in indexes)
    return bool(indexes) and is_argument

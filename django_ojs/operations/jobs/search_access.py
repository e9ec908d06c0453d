"""What a search may look in: a search that finds a job reveals what the job carries.

So a user without the permission to see payloads cannot search in them, and no user searches in what
`OJS["ADMIN_REDACT"]` hides.
"""

from collections.abc import Callable, Iterable

from django_ojs.conf import settings
from django_ojs.hooks import registry
from django_ojs.operations.jobs.search_query import Search
from django_ojs.storage.dialects.json_contains import JSONMatch

_NO_PERMISSION = "You need the permission to see payloads to search in args, meta or error."
_REDACTED = "This site hides what you search in args, meta or error, so it cannot be searched."
_REDACTED_ARGUMENT = (
    "This site hides an argument that this may look in, so it cannot be searched. Name the index "
    "of another argument, such as args.0, or a type that has no hidden argument."
)


def permitted(
    search: Search, *, payload: bool, positions: Callable[[str], Iterable[tuple[str, range]]]
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
    one_type = None if which.type is None or which.type.endswith("*") else which.type
    places = [
        indexes
        for name in settings().admin_redact
        for type, indexes in positions(name)
        if one_type in (None, type)
    ]
    if is_error_redacted or any(_is_redacted(held, names) for held in which.held):
        errors.append(_REDACTED)
    elif any(_is_redacted_argument(held, places) for held in which.held):
        errors.append(_REDACTED_ARGUMENT)
    return Search(filter=None if errors else which.located(positions), errors=errors)


def _is_redacted(held: JSONMatch, names: frozenset[str]) -> bool:
    return "*" in names or not names.isdisjoint(name.casefold() for name in held.path)


def _is_redacted_argument(held: JSONMatch, places: Iterable[range]) -> bool:
    """Return whether a condition may be about a hidden argument; `places` are their indexes.

    A path without an index begins in any argument.
    """
    if held.column != "args":
        return False
    return any(not held.has_index or int(held.path[0]) in indexes for indexes in places)

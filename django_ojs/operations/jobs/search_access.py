"""What a search may look in: a search that finds a job reveals what the job carries.

So a user without the permission to see payloads cannot search in them, and no user searches in what
`OJS["ADMIN_REDACT"]` hides.
"""

from dataclasses import replace

from django_ojs.conf import settings
from django_ojs.operations.jobs.search_query import Search
from django_ojs.storage.dialects.json_contains import JSONMatch

_NO_PERMISSION = "You need the permission to see payloads to search in args, meta or error."
_REDACTED = "This site hides what args, meta or error name here, so it cannot be searched."


def permitted(search: Search, *, payload: bool) -> Search:
    """Return a search without the conditions that the user must not use, each with an error.

    `payload`: whether the user may see what jobs carry.
    """
    which, errors = search.filter, list(search.errors)
    if not payload and (which.held or which.error is not None):
        errors.append(_NO_PERMISSION)
        which = replace(which, held=(), error=None)
    names = frozenset(name.casefold() for name in settings().admin_redact)
    held = tuple(each for each in which.held if not _is_redacted(each, names))
    error = None if names & {"*", "message"} else which.error
    if (held, error) != (which.held, which.error):
        errors.append(_REDACTED)
        which = replace(which, held=held, error=error)
    return Search(filter=which, errors=errors)


def _is_redacted(held: JSONMatch, names: frozenset[str]) -> bool:
    return "*" in names or not names.isdisjoint(name.casefold() for name in held.path)

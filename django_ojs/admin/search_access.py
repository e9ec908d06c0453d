"""What a search may look for: one that finds a job tells what the job carries.

So whoever may not see arguments, metadata and messages may not search in them, and nobody searches
in what `OJS["ADMIN_REDACT"]` hides.
"""

from dataclasses import replace

from django_ojs.admin.search_query import Query
from django_ojs.conf import settings
from django_ojs.storage.dialects.json_contains import JSONMatch

_NOT_ALLOWED = "args, meta and error are searched by those who may see them."
_HIDDEN = "This site hides what args, meta or error name here; nobody searches in it."


def discreet(query: Query, *, payload: bool) -> Query:
    """Return a search without what would tell more than a page shows, and say what was left out.

    `payload`: whether the user may see what jobs carry.
    """
    which, complaints = query.filter, list(query.complaints)
    if not payload and (which.held or which.error is not None):
        complaints.append(_NOT_ALLOWED)
        which = replace(which, held=(), error=None)
    hidden = frozenset(name.casefold() for name in settings().admin_redact)
    held = tuple(each for each in which.held if not _is_hidden(each, hidden))
    error = None if hidden & {"*", "message"} else which.error
    if (held, error) != (which.held, which.error):
        complaints.append(_HIDDEN)
        which = replace(which, held=held, error=error)
    return Query(filter=which, complaints=complaints)


def _is_hidden(held: JSONMatch, hidden: frozenset[str]) -> bool:
    return "*" in hidden or not hidden.isdisjoint(name.casefold() for name in held.path)


__all__ = ["discreet"]

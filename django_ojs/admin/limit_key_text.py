"""Limit keys as a user may see them: their parts that are arguments of jobs are payload."""

from collections.abc import Iterable, Iterator

from django.http import HttpRequest

from django_ojs.admin import payloads
from django_ojs.conf import settings
from django_ojs.operations.jobs.redaction import HIDDEN
from django_ojs.registry import registry
from django_ojs.spec import rate_limit_policy


def shown(request: HttpRequest, key: str) -> str:
    """Return a key, with the parts hidden that the user may not see.

    Which parts are arguments is known from the templates of the handlers. A key that none of them
    gives was made by another program, or for one enqueue.
    """
    if sees_all(request):
        return key
    redacted = frozenset(name.casefold() for name in settings().admin_redact)
    may_see = payloads.may_see(request)

    def is_hidden(name: str) -> bool:
        return not may_see or name.casefold() in redacted

    found = rate_limit_policy.hide_arguments(key, _templates(), is_hidden, HIDDEN)
    if found is None:
        return key if may_see else HIDDEN
    return found


def sees_all(request: HttpRequest) -> bool:
    """Return whether no part of a key is hidden from the user."""
    return not settings().admin_redact and payloads.may_see(request)


def visible(request: HttpRequest, keys: Iterable[str]) -> list[str]:
    """Return those keys of which the user may see all."""
    return [key for key in keys if is_visible(request, key)]


def is_visible(request: HttpRequest, key: str) -> bool:
    """Return whether the user may see all of a key."""
    return shown(request, key) == key


def _templates() -> Iterator[tuple[str, str]]:
    for handler in registry.handlers.values():
        policy = handler.defaults.rate_limit
        if policy is not None:
            yield rate_limit_policy.parse_python(policy)["key"], handler.type

"""Which session keeps the rows of jobs locked, for messages."""

from collections.abc import Collection
from uuid import UUID

from django.db import Error
from django.utils import timezone

from django_ojs.storage import database


def holder_of(keys: Collection[UUID]) -> str:
    """Return which session has locked the rows of active jobs, as far as the server tells."""
    try:
        holders = database.dialect().lock_holders(database.connection(), keys)
    except Error:
        holders = []
    if not holders:
        return "another session"
    since = holders[0].since
    began = (
        "" if since is None else f" in a transaction that began at {timezone.localtime(since):%X}"
    )
    return f"{holders[0].name}{began}"

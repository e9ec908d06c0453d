"""Which sessions keep rows of active jobs locked."""

from collections.abc import Collection
from datetime import timedelta
from typing import Final
from uuid import UUID

from django.db import Error
from django.utils import timezone

from django_ojs.storage import database
from django_ojs.storage.dialects.server import LockHolder

#: A session whose transaction began less than this ago is not reported.
LOCKED_FOR: Final = timedelta(seconds=2)


def _holders(keys: Collection[UUID] | None) -> list[LockHolder]:
    """Return the sessions that keep rows of active jobs locked: of these jobs, or of any."""
    dialect = database.dialect()
    values = {"keys": None if keys is None else dialect.ids(keys)}
    return dialect.read(database.connection(), LockHolder, values)


def lasting() -> list[LockHolder]:
    """Return the sessions that have kept rows of active jobs locked for a while.

    The locks of workers themselves last milliseconds.
    """
    found = _holders(None)
    recent = timezone.now() - LOCKED_FOR
    return [each for each in found if each.since is None or each.since <= recent]


def holder_of(keys: Collection[UUID]) -> str:
    """Return which session has locked the rows of active jobs, as far as the server tells."""
    try:
        holders = _holders(keys)
    except Error:
        holders = []
    if not holders:
        return "another session"
    since = holders[0].since
    began = (
        "" if since is None else f" in a transaction that began at {timezone.localtime(since):%X}"
    )
    return f"{holders[0].name}{began}"

"""Find an API key by its prefix. Each request of a program does this first."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from django_ojs.spec import json
from django_ojs.storage import database

_TIMES: Final = ("created_at", "expires_at", "revoked_at", "last_used_at", "rejected_at", "now")


@dataclass(kw_only=True, slots=True)
class StoredKey:
    """A stored key, and the database's time of the query as `now`; see the model `ApiKey`.

    It is not a model instance, because making one takes as long as the statement.
    """

    pk: int
    name: str
    prefix: str
    principal: str
    digest: str
    scopes: list[str]
    queues: list[str]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    rejected_at: datetime | None
    now: datetime


def find(prefix: str) -> StoredKey | None:
    """Return the key with this prefix, or None."""
    connection = database.connection()
    text = database.dialect_of(connection).api_key(connection, prefix)
    if text is None:
        return None
    values: Any = json.loads_stored(text)
    for name in _TIMES:
        if values[name] is not None:
            values[name] = _time(values[name])
    return StoredKey(**values)


def _time(text: str) -> datetime:
    # Times of SQLite have no offset, because Django stores them in UTC.
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment

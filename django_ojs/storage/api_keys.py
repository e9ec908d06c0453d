"""Find an API key by its prefix, as each request of a program does first."""

from typing import Any

from django_ojs.models import ApiKey
from django_ojs.storage import database, raw_queries


def find(prefix: str) -> Any:
    """Return the key with this prefix and the database's time as `now`, or None."""
    dialect = database.dialect()
    for key in raw_queries.rows(ApiKey, "prefix = %s", [prefix], dialect.now):
        found: Any = key
        found.now = dialect.time(found.extra[0])
        return found
    return None

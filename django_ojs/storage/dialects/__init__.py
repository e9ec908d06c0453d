"""What differs between databases.

A new database is a module here, a folder in `sql`, a line below, and its functions and triggers in
`migrations/sql`.
"""

from django.db import NotSupportedError
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs.storage.dialects.base import Dialect
from django_ojs.storage.dialects.postgresql import PostgreSQL
from django_ojs.storage.dialects.sqlite import SQLite

_DIALECTS: dict[str, Dialect] = {"postgresql": PostgreSQL(), "sqlite": SQLite()}


def of(connection: BaseDatabaseWrapper) -> Dialect:
    """Return the dialect for a connection. Raises NotSupportedError naming the database."""
    try:
        return _DIALECTS[connection.vendor]
    except KeyError:
        raise NotSupportedError(
            f"django_ojs keeps jobs in PostgreSQL or SQLite; the alias {connection.alias!r} is "
            f"{connection.vendor}."
        ) from None

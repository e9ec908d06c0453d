"""What else goes on in the database, where it can be asked."""

from datetime import timedelta

from django.db.backends.base.base import BaseDatabaseWrapper

# Only transactions that keep VACUUM from its work: those that hold a snapshot or have written.
_OLDEST = """
SELECT max(clock_timestamp() - xact_start) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
  AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
"""


def oldest_transaction(connection: BaseDatabaseWrapper) -> timedelta | None:
    """Return how long the oldest other transaction has been open; None: there is none, or SQLite.

    While it is open, no row that was changed since can be cleaned up, and claims get slower.
    """
    if connection.vendor != "postgresql":
        return None
    with connection.cursor() as cursor:
        cursor.execute(_OLDEST)
        (age,) = cursor.fetchone()
    return age if isinstance(age, timedelta) else None

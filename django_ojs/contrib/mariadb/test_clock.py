"""The clock of a session of MariaDB, which a test stops."""

from datetime import UTC, datetime, timedelta

from django.db.backends.base.base import BaseDatabaseWrapper


class MariaDBClock:
    """Sets the time that every `UTC_TIMESTAMP()` of a session returns."""

    def __init__(self, link: BaseDatabaseWrapper) -> None:
        self._link = link

    def set(self, moment: datetime) -> None:
        """Stop at a moment."""
        with self._link.cursor() as cursor:
            # MariaDB uses the last moment that it knows in place of a later one.
            cursor.execute(f"SET timestamp = {moment.timestamp():.6f}")
            cursor.execute("SELECT UTC_TIMESTAMP(6)")
            stopped_at = cursor.fetchone()[0].replace(tzinfo=UTC)
        if abs(stopped_at - moment) > timedelta(seconds=1):
            raise ValueError(
                f"freeze() cannot stop the clock of the database at {moment}: it ends on "
                f"{stopped_at:%Y-%m-%d}. Choose an earlier moment."
            )

    def reset(self) -> None:
        """Return to the present."""
        with self._link.cursor() as cursor:
            cursor.execute("SET timestamp = DEFAULT")

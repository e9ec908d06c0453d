"""SQL expressions whose text differs between databases."""

from typing import Any

from django.db.models import DateTimeField, DurationField, Func


class Milliseconds(Func):
    """A duration, of a number of milliseconds that the database holds."""

    output_field = DurationField()
    template = "(%(expressions)s * interval '1 millisecond')"

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        """Django keeps durations as microseconds where the database has no type for them."""
        return self.as_sql(compiler, connection, template="(%(expressions)s * 1000)", **extra)


class Moment(Func):
    """A moment as the database's own clock would have written it, to compare with what it wrote."""

    output_field = DateTimeField()
    template = "%(expressions)s"

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        """Django writes microseconds or none, SQLite's clock three digits; they compare as text."""
        return self.as_sql(
            compiler,
            connection,
            template="STRFTIME('%%%%Y-%%%%m-%%%%d %%%%H:%%%%M:%%%%f', %(expressions)s)",
            **extra,
        )

"""SQL expressions whose text differs between databases."""

from typing import Any

from django.db.models import DurationField, Func


class Milliseconds(Func):
    """A duration, of a number of milliseconds that the database holds."""

    output_field = DurationField()
    template = "(%(expressions)s * interval '1 millisecond')"

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        """Django keeps durations as microseconds where the database has no type for them."""
        return self.as_sql(compiler, connection, template="(%(expressions)s * 1000)", **extra)

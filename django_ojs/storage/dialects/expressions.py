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


# As text, a moment has no fraction, three digits or six.
_SIX_DIGITS = "SUBSTR(%(expressions)s || SUBSTR('.000000', LENGTH(%(expressions)s) - 18), 1, 26)"


class Microseconds(Func):
    """A moment, a column's or a value, such that equal ones compare as equal."""

    output_field = DateTimeField()
    template = "%(expressions)s"

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        """Fill up with zeros."""
        return _twice(self, compiler, connection, _SIX_DIGITS, **extra)


class Shortest(Func):
    """A moment such that no other text of the same moment comes before it."""

    output_field = DateTimeField()
    template = "%(expressions)s"

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        """Drop what need not be said."""
        template = f"RTRIM(RTRIM({_SIX_DIGITS}, '0'), '.')"
        return _twice(self, compiler, connection, template, **extra)


def _twice(func: Func, compiler: Any, connection: Any, template: str, **extra: Any) -> Any:
    # The expression stands there twice, and so do its parameters.
    sql, params = func.as_sql(compiler, connection, template=template, **extra)
    return sql, [*params, *params]

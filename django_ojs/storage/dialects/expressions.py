"""SQL expressions whose text differs between databases."""

from collections.abc import Collection
from typing import Any, ClassVar
from uuid import UUID

from django.db.models import (
    BooleanField,
    DateTimeField,
    DurationField,
    F,
    FloatField,
    Func,
    Lookup,
    UUIDField,
    Value,
)
from django.db.models.lookups import Contains

from django_ojs.spec import json
from django_ojs.spec.failure import PLACE


class HasForm(Contains):
    """Whether a text has a form: the parts between the `PLACE`s, in this order."""

    def process_rhs(self, *args: Any) -> Any:
        """Return the pattern, without the `%` at both ends that `Contains` adds."""
        sql, params = Lookup.process_rhs(self, *args)
        parts, escaped = str(params[0]).split(PLACE), args[1].ops.prep_for_like_query
        return sql, ["%".join(map(escaped, parts)), *params[1:]]


class OneOf(Lookup):
    """Whether a column is one of these ids or texts, as one parameter.

    `pk__in` has a parameter for each id; five hundred take longer to parse than to delete. It is a
    lookup and not a function, because Django compares a function with true on MariaDB: that uses no
    index, so an UPDATE locks, and waits for, all rows of the table.
    """

    lookup_name = "one_of"
    prepare_rhs = False

    def __init__(self, column: str, keys: "Collection[UUID] | Texts") -> None:
        super().__init__(F(column), keys if isinstance(keys, Texts) else Keys(list(keys)))

    def as_sql(self, compiler: Any, connection: Any, operator: str = "= ANY") -> Any:
        lhs, params = self.process_lhs(compiler, connection)
        rhs, keys = compiler.compile(self.rhs)
        return f"{lhs} {operator} {rhs}", [*params, *keys]

    def as_sqlite(self, compiler: Any, connection: Any) -> Any:
        """Compare with the elements of a JSON array."""
        return self.as_sql(compiler, connection, "IN")


class Unlocked(Value):
    """The id of a job, or NULL while another session has locked its row.

    An UPDATE by this id locks the row and does not wait. SQLite does not lock rows.
    """

    def __init__(self, job_id: UUID) -> None:
        super().__init__(job_id, output_field=UUIDField())

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        """Lock the row."""
        sql, params = self.as_sql(compiler, connection)
        return f"(SELECT id FROM ojs_job WHERE id = {sql} FOR NO KEY UPDATE SKIP LOCKED)", params


class AmongJobs(Func):
    """Whether a job is among those of a query, found by the primary key of the jobs.

    For a join, the planner may read all jobs in the order of their ids. `query` lacks the value at
    its end, and the brackets that close it.
    """

    output_field = BooleanField()
    query: ClassVar[str]
    _end: ClassVar[str]

    def __init_subclass__(cls) -> None:
        cls._end = ")" * cls.query.count("(")
        cls.template, cls.arg_joiner = f"%(expressions)s{cls._end})", f" = ANY(ARRAY{cls.query}"

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        """Compare with the rows themselves: SQLite has no arrays."""
        return self.as_sql(
            compiler,
            connection,
            template=f"%(expressions)s{self._end}",
            arg_joiner=f" IN {self.query}",
            **extra,
        )


class RetriedBy(AmongJobs):
    """Whether a bulk operation retried a job."""

    # Other operations do not count: not every user who may see jobs may see what a search has
    # found.
    query = (
        "(SELECT job_id FROM ojs_bulk_operation_job WHERE operation_id = "
        "(SELECT id FROM ojs_bulk_operation WHERE action = 'retry' AND id = "
    )

    def __init__(self, operation: int) -> None:
        super().__init__(F("pk"), Value(operation))


class InWorkflow(AmongJobs):
    """Whether a job is a step of a workflow: a step has the id of its job."""

    query = "(SELECT id FROM ojs_workflow_step WHERE workflow_id = "

    def __init__(self, workflow: UUID) -> None:
        super().__init__(F("pk"), Value(workflow, output_field=UUIDField()))


class Keys(Value):
    """Ids, as one parameter."""

    def as_sql(self, compiler: Any, connection: Any) -> Any:
        return "(%s::uuid[])", [as_array(self.value)]

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return "(SELECT value FROM json_each(%s))", [as_json(self.value)]


class Texts(Keys):
    """Texts, as one parameter."""

    def as_sql(self, compiler: Any, connection: Any) -> Any:
        return "(%s::text[])", [self.value]

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return "(SELECT value FROM json_each(%s))", [json.dumps(self.value)]


def as_array(keys: Collection[UUID]) -> str:
    """Return a `uuid[]` of PostgreSQL as text; the driver takes longer for a list of UUIDs."""
    return "{" + ",".join([key.hex for key in keys]) + "}"


def as_json(keys: Collection[UUID]) -> str:
    """Return a JSON array of ids as SQLite stores them."""
    return json.dumps([key.hex for key in keys])


class Milliseconds(Func):
    """A duration, from an expression in milliseconds."""

    output_field = DurationField()
    template = "(%(expressions)s * interval '1 millisecond')"

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        """Return microseconds, as Django stores durations where the database has no such type."""
        return self.as_sql(compiler, connection, template="(%(expressions)s * 1000)", **extra)


class ElapsedMilliseconds(Func):
    """The time from the second of two times to the first, in milliseconds."""

    output_field = FloatField()
    template = "(EXTRACT(EPOCH FROM %(expressions)s) * 1000)"
    arg_joiner = " - "

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        """Subtract days, which are exact to 0.04 ms: Django's own way calls Python for each row."""
        return self.as_sql(
            compiler,
            connection,
            template="ROUND((JULIANDAY(%(expressions)s)) * 86400000.0)",
            arg_joiner=") - JULIANDAY(",
            **extra,
        )


class Moment(Func):
    """A time as the database's own clock writes it, to compare with a time that it wrote."""

    output_field = DateTimeField()
    template = "%(expressions)s"

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        """Write three digits, as SQLite's clock does; Django writes six or none."""
        return self.as_sql(
            compiler,
            connection,
            template="STRFTIME('%%%%Y-%%%%m-%%%%d %%%%H:%%%%M:%%%%f', %(expressions)s)",
            **extra,
        )


# As text, a time has no fraction, three digits or six.
_SIX_DIGITS = "SUBSTR(%(expressions)s || SUBSTR('.000000', LENGTH(%(expressions)s) - 18), 1, 26)"


class Microseconds(Func):
    """A time, of a column or a value, such that equal times compare as equal."""

    output_field = DateTimeField()
    template = "%(expressions)s"

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        """Fill the fraction with zeros, to six digits."""
        return _twice(self, compiler, connection, _SIX_DIGITS, **extra)


class Shortest(Func):
    """A time such that no other text of the same time sorts before it."""

    output_field = DateTimeField()
    template = "%(expressions)s"

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        """Remove the zeros at the end of the fraction."""
        template = f"RTRIM(RTRIM({_SIX_DIGITS}, '0'), '.')"
        return _twice(self, compiler, connection, template, **extra)


def _twice(func: Func, compiler: Any, connection: Any, template: str, **extra: Any) -> Any:
    # The template has the expression twice, so the parameters are needed twice.
    sql, params = func.as_sql(compiler, connection, template=template, **extra)
    return sql, [*params, *params]

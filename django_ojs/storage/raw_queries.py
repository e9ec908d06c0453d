"""Model rows by literal SQL, for the queries of every HTTP request and of idle maintenance.

The ORM takes 0.3 ms to build the statement of a row by its key, and the database 0.1 ms to run it.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final, TypeVar
from uuid import UUID

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Field, Model, QuerySet
from django.db.models.sql import UpdateQuery

from django_ojs.spec import json
from django_ojs.storage import database

M = TypeVar("M", bound=Model)

_LONGEST: Final = timedelta(days=365_000)

# The converters of the columns, as the ORM has them; by thread, as the connections are. They depend
# on the models and the database only, so they need no reset.
_converters: Final = threading.local()
_Converter = Callable[[Any, Any, Any], Any]
#: For each column that needs converters: its index in a row, its expression, the converters.
_Converters = Sequence[tuple[int, Any, list[_Converter]]]


def rows(model: type[M], where: str, values: Sequence[Any]) -> list[M]:
    """Return the rows for which `where` holds, as instances of the model."""
    alias = database.alias()
    names = _attributes(model)
    found = _select(model, names, where, values)
    return [model.from_db(alias, names, row) for row in found]


def values(
    model: type[Model],
    names: Sequence[str],
    where: str,
    parameters: Sequence[Any] | Mapping[str, Any] = (),
    *,
    more: Sequence[str] = (),
) -> list[list[Any]]:
    """Return these columns of the rows for which `where` holds, as the model has their values.

    After them come the expressions `more`, as the driver returns them. With named parameters, the
    query belongs to a FETCH, and a session that repeats it may keep its plan.
    """
    return _select(model, names, where, parameters, *more)


def _select(
    model: type[Model],
    names: Sequence[str],
    where: str,
    parameters: Sequence[Any] | Mapping[str, Any],
    *more: str,
) -> list[list[Any]]:
    connection = database.connection()
    columns, converters = _columns(model, names, connection)
    statement = f"SELECT {', '.join((columns, *more))} FROM {model._meta.db_table} WHERE {where}"
    is_repeated = isinstance(parameters, Mapping)
    dialect = database.dialect_of(connection)
    found = dialect.rows(connection, statement, parameters, is_repeated=is_repeated)
    return _converted(connection, found, converters)


def _converted(
    connection: BaseDatabaseWrapper, rows: Sequence[Sequence[Any]], converters: _Converters
) -> list[list[Any]]:
    """Convert rows that begin with the columns of these converters, as the models do."""
    found = [list(row) for row in rows]
    for row in found:
        for index, expression, steps in converters:
            for step in steps:
                row[index] = step(row[index], expression, connection)
    return found


def columns_of(model: type[Model]) -> str:
    """Return the columns of a model, for a statement that returns its rows to `instances`."""
    return _columns(model, _attributes(model), database.connection())[0]


def instances(model: type[M], rows: Sequence[Sequence[Any]]) -> list[M]:
    """Return instances of the model from rows of its `columns_of`, as the driver has them."""
    connection, names = database.connection(), _attributes(model)
    found = _converted(connection, rows, _columns(model, names, connection)[1])
    return [model.from_db(connection.alias, names, row) for row in found]


def read(which: QuerySet[Any, Any]) -> list[tuple[Any, ...]]:
    """Return the rows of a query, as `values_list` has them.

    `Dialect.rows` reads them, because Django's loader of times takes as long as everything else
    together.
    """
    connection = database.connection()
    compiler = which.query.get_compiler(connection=connection)
    found = database.dialect_of(connection).rows(connection, *compiler.as_sql())
    return list(compiler.results_iter([found], tuple_expected=True))


def read_instances(which: QuerySet[M]) -> list[M]:
    """Return the rows of a query as instances of the model; see `read`."""
    names = _attributes(which.model)
    return [which.model.from_db(which.db, names, row) for row in read(which)]


def update_returning(which: QuerySet[M], values: Mapping[str, Any]) -> list[M]:
    """Change rows as `QuerySet.update` does, and return them as they are then.

    This needs a dialect that `has_update_returning`.
    """
    connection, model = database.connection(), which.model
    names = _attributes(model)
    query: Any = which.query.chain(UpdateQuery)
    query.add_update_values(values)
    statement, parameters = query.get_compiler(connection=connection).as_sql()
    columns, converters = _columns(model, names, connection)
    with connection.cursor() as cursor:
        cursor.execute(f"{statement} RETURNING {columns}", parameters)
        found = _converted(connection, cursor.fetchall(), converters)
    return [model.from_db(connection.alias, names, row) for row in found]


def change(model: type[Model], values: str, where: str, parameters: Sequence[Any]) -> int:
    """Change the rows for which `where` holds, by the SQL `values`. Return how many there are."""
    with database.connection().cursor() as cursor:
        cursor.execute(f"UPDATE {model._meta.db_table} SET {values} WHERE {where}", parameters)
        return int(cursor.rowcount)


def update(model: type[M], changed: Sequence[M], names: Sequence[str]) -> None:
    """Store these fields of the changed rows."""
    table, key = model._meta.db_table, model._meta.pk.name
    if (source := database.dialect().records) is None:
        columns = ", ".join(f"{name} = %s" for name in names)
        statement = f"UPDATE {table} SET {columns} WHERE {key} = %s"
    else:
        columns = ", ".join(f"{name} = new.{name}" for name in names)
        statement = (
            f"UPDATE {table} SET {columns} FROM {source.format(table=table)} AS new"
            f" WHERE {table}.{key} = new.{key}"
        )
    names = (*names, key)
    _store(model, statement, names, [[getattr(row, name) for name in names] for row in changed])


def insert(model: type[Model], names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Insert rows, with the values of these fields."""
    table, columns = model._meta.db_table, ", ".join(names)
    if (source := database.dialect().records) is None:
        values = f"VALUES ({', '.join('%s' for _ in names)})"
    else:
        values = f"SELECT {columns} FROM {source.format(table=table)} AS new"
    _store(model, f"INSERT INTO {table} ({columns}) {values}", names, rows)


def _store(
    model: type[Model], statement: str, names: Sequence[str], rows: Sequence[Sequence[Any]]
) -> None:
    """Execute a statement with all rows as its parameter, or with the values of each."""
    if not rows:
        return
    connection = database.connection()
    with connection.cursor() as cursor:
        if database.dialect().records is None:
            fields = {field.name: field.get_db_prep_save for field in model._meta.concrete_fields}
            prepare = [fields[name] for name in names]
            values = [
                [each(value, connection) for each, value in zip(prepare, row, strict=True)]
                for row in rows
            ]
            cursor.executemany(statement, values)
            return
        records = [
            {
                name: str(value) if isinstance(value, (datetime, UUID)) else value
                for name, value in zip(names, row, strict=True)
            }
            for row in rows
        ]
        cursor.execute(statement, [json.dumps(records)])


def exists(
    model: type[Model], where: str, values: Sequence[Any] = (), *, using: str | None = None
) -> bool:
    """Whether there is a row for which `where` holds."""
    with database.connection(using).cursor() as cursor:
        cursor.execute(f"SELECT {condition(model, where)}", values)
        return bool(cursor.fetchone()[0])


def condition(model: type[Model], where: str) -> str:
    """Return the SQL that says whether there is a row for which `where` holds, for `which_hold`."""
    return f"EXISTS (SELECT 1 FROM {model._meta.db_table} WHERE {where})"


def is_older(model: type[Model], column: str, where: str, age: timedelta) -> str:
    """Return the SQL that says whether a row is at least as old as `age`, for `which_hold`.

    It asks for the least time of the rows for which `where` holds and not for EXISTS, because the
    database reads the least time from the end of an index.
    """
    oldest = f"SELECT min({column}) FROM {model._meta.db_table} WHERE {where}"
    # Databases cannot subtract more than this, and no row is as old.
    seconds = min(age, _LONGEST).total_seconds()
    return f"(({oldest}) <= {database.dialect().ago(seconds)})"


def which_hold(conditions: Sequence[str], values: Sequence[str] = ()) -> list[bool]:
    """Return which of some conditions hold, by one statement.

    They are written as in a statement that has parameters, even if there are none.
    """
    connection = database.connection()
    return database.dialect_of(connection).which_hold(connection, conditions, values)


def holds(condition: str, values: Sequence[str] = ()) -> bool:
    """Return whether a condition holds; see `which_hold`."""
    return which_hold([condition], values)[0]


def keys(model: type[Model], where: str, *, limit: int) -> list[UUID]:
    """Return the keys of up to `limit` rows for which `where` holds, in no particular order."""
    statement = f"SELECT id FROM {model._meta.db_table} WHERE {where} LIMIT %s"
    with database.connection().cursor() as cursor:
        cursor.execute(statement, [limit])
        found = cursor.fetchall()
    read = database.dialect().uuid
    return [read(key) for (key,) in found]


def count(model: type[Model], where: str, values: Sequence[Any], *, limit: int) -> int:
    """Return for how many rows `where` holds; `limit` if there are more."""
    rows = f"SELECT 1 FROM {model._meta.db_table} WHERE {where} LIMIT {limit}"
    with database.connection().cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM ({rows}) AS found", values)
        return int(cursor.fetchone()[0])


@cache
def _attributes(model: type[Model]) -> tuple[str, ...]:
    return tuple(field.attname for field in model._meta.concrete_fields)


def _columns(
    model: type[Model], names: Sequence[str], connection: BaseDatabaseWrapper
) -> tuple[str, _Converters]:
    key = connection.alias, model._meta.label, tuple(names)
    known = _converters.__dict__.setdefault("of", {})
    if key not in known:
        columns, converters = [], []
        for index, name in enumerate(names):
            field = model._meta.get_field(name)
            assert isinstance(field, Field)
            expression = field.get_col(model._meta.db_table)
            steps = [
                *connection.ops.get_db_converters(expression),
                *expression.get_db_converters(connection),
            ]
            columns.append(connection.ops.quote_name(field.column or name))
            if steps:
                converters.append((index, expression, steps))
        known[key] = ", ".join(columns), converters
    found: tuple[str, _Converters] = known[key]
    return found

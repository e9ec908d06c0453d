"""The SQL of the expressions of django_ojs on MariaDB.

Django asks an expression for `as_<vendor>`, and an app gives it to those of another one.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from django_ojs.spec import json
from django_ojs.storage.dialects import expressions as of_core
from django_ojs.storage.dialects.json_contains import JSONContains

_SQL = tuple[str, Sequence[Any]]


def _one_of(lookup: of_core.OneOf, compiler: Any, connection: Any) -> Any:
    """Compare with a list, which the driver writes."""
    return lookup.as_sql(compiler, connection, "IN")


def _keys(keys: of_core.Keys, compiler: Any, connection: Any, **extra: Any) -> _SQL:
    # An empty list would be no SQL; no row has this id.
    return "%s", [[str(key) for key in keys.value or [UUID(int=0)]]]


def _unlocked(job_id: of_core.Unlocked, compiler: Any, connection: Any, **extra: Any) -> _SQL:
    """Lock the row."""
    sql, params = job_id.as_sql(compiler, connection)
    return f"(SELECT id FROM ojs_job WHERE id = {sql} FOR UPDATE SKIP LOCKED)", params


def _as_on_sqlite(expression: Any, compiler: Any, connection: Any, **extra: Any) -> Any:
    return expression.as_sqlite(compiler, connection, **extra)


def _elapsed(
    elapsed: of_core.ElapsedMilliseconds, compiler: Any, connection: Any, **extra: Any
) -> _SQL:
    """Take the difference in microseconds, of which the second time is named first."""
    later, earlier = map(compiler.compile, elapsed.source_expressions)
    return (
        f"(TIMESTAMPDIFF(MICROSECOND, {earlier[0]}, {later[0]}) / 1000)",
        [*earlier[1], *later[1]],
    )


def _json_contains(contains: JSONContains, compiler: Any, connection: Any, **extra: Any) -> _SQL:
    """Ask whether a value at the path is equal, also in the list that the column is.

    The path has `[*]` for any item. JSON_CONTAINS of a scalar compares it with each item of an
    array, and of the arrays in that; JSON_OVERLAPS with the items alone. At one path there is to be
    no array.
    """
    column, given = compiler.compile(contains.source_expressions[0])
    match = contains.match
    keys = match.path[1:] if match.has_index else match.path
    start = f"$[{match.path[0]}]" if match.has_index else _STARTS[match.column]
    path = start + "".join(f'."{_escaped(key)}"' for key in keys)
    parts: list[str] = []
    params: list[Any] = []
    for value in match.values:
        # JSON_EXTRACT makes an array of what a path with [*] finds, and of nothing NULL.
        if "[*]" in path:
            parts.append(f"JSON_OVERLAPS(JSON_EXTRACT({column}, %s), %s)")
            params += [*given, path, json.dumps([value])]
        else:
            parts.append(
                f"(JSON_CONTAINS({column}, %s, %s) AND JSON_TYPE(JSON_EXTRACT({column}, %s))"
                " <> 'ARRAY')"
            )
            params += [*given, json.dumps(value), path, *given, path]
    return f"({' OR '.join(parts)})", params


_STARTS: Final = {"args": "$[*]", "meta": "$", "tags": "$.tags[*]"}


def _escaped(key: str) -> str:
    return key.replace("\\", "\\\\")


_BY_CLASS: Final[Mapping[type[Any], Callable[..., Any]]] = {
    of_core.OneOf: _one_of,
    of_core.Keys: _keys,
    of_core.Unlocked: _unlocked,
    of_core.AmongJobs: _as_on_sqlite,
    # Microseconds, of which Django makes an interval.
    of_core.Milliseconds: _as_on_sqlite,
    of_core.ElapsedMilliseconds: _elapsed,
    JSONContains: _json_contains,
}


def install() -> None:
    """Give the expressions their SQL."""
    for expression, sql in _BY_CLASS.items():
        expression.as_mysql = sql

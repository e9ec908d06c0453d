"""The SQL of the expressions of django_ojs on MariaDB.

Django calls the method `as_<vendor>` of an expression. This app adds it to the core's expressions.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from django_ojs.spec import json
from django_ojs.storage.dialects import expressions as of_core
from django_ojs.storage.dialects.json_contains import JSONContains

_SQL = tuple[str, Sequence[Any]]


def _one_of(lookup: of_core.OneOf, compiler: Any, connection: Any) -> Any:
    """Compare with a list, which the driver writes into the statement."""
    return lookup.as_sql(compiler, connection, "IN")


def _keys(keys: of_core.Keys, compiler: Any, connection: Any, **extra: Any) -> _SQL:
    # An empty list would be no SQL; no row has this id.
    return "%s", [[str(key) for key in keys.value or [UUID(int=0)]]]


def _unlocked(job_id: of_core.Unlocked, compiler: Any, connection: Any, **extra: Any) -> _SQL:
    """Lock the row, unless another session has locked it."""
    sql, params = job_id.as_sql(compiler, connection)
    return f"(SELECT id FROM ojs_job WHERE id = {sql} FOR UPDATE SKIP LOCKED)", params


def _as_on_sqlite(expression: Any, compiler: Any, connection: Any, **extra: Any) -> Any:
    return expression.as_sqlite(compiler, connection, **extra)


def _elapsed(
    elapsed: of_core.ElapsedMilliseconds, compiler: Any, connection: Any, **extra: Any
) -> _SQL:
    """Take the difference in microseconds. TIMESTAMPDIFF has the earlier time first."""
    later, earlier = map(compiler.compile, elapsed.source_expressions)
    return (
        f"(TIMESTAMPDIFF(MICROSECOND, {earlier[0]}, {later[0]}) / 1000)",
        [*earlier[1], *later[1]],
    )


def _json_contains(contains: JSONContains, compiler: Any, connection: Any, **extra: Any) -> _SQL:
    """Compare the value at a path, in which `[*]` is any item of a list.

    JSON_CONTAINS compares a scalar with each item of an array, and of the arrays in it;
    JSON_OVERLAPS compares only the items. Without `[*]`, the value must not be an array.
    """
    column, given = compiler.compile(contains.source_expressions[0])
    match = contains.match
    keys = match.path[1:] if match.has_index else match.path
    start = f"$[{match.path[0]}]" if match.has_index else _STARTS[match.column]
    path = start + "".join(f'."{_escaped(key)}"' for key in keys)
    parts: list[str] = []
    params: list[Any] = []
    for value in match.values:
        # For a path with [*], JSON_EXTRACT returns an array of what it finds, or NULL.
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
    # Django makes an interval of the microseconds.
    of_core.Milliseconds: _as_on_sqlite,
    of_core.ElapsedMilliseconds: _elapsed,
    JSONContains: _json_contains,
}


def install() -> None:
    """Give the expressions their SQL."""
    for expression, sql in _BY_CLASS.items():
        expression.as_mysql = sql

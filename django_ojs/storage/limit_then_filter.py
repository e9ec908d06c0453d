"""Filter the first rows of a query: its conditions choose them, and further conditions filter them.

PostgreSQL chooses an index by its estimate for all conditions together. Where two columns depend on
each other, the estimate is wrong, and it may read the whole table to find a few rows. It moves no
condition into a subquery with a LIMIT.
"""

from typing import Any, TypeVar

import django
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model, QuerySet
from django.db.models.sql import Query
from django.db.models.sql.compiler import SQLCompiler
from django.db.models.sql.datastructures import BaseTable

T = TypeVar("T", bound=Model)


class _Rows(BaseTable):
    """The rows of a query in the place of the table they are from, under its name."""

    def __init__(self, rows: Query, table: str, alias: str | None) -> None:
        super().__init__(table, alias)
        self._rows = rows

    def as_sql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper
    ) -> tuple[str, tuple[Any, ...]]:
        sql, parameters = self._rows.get_compiler(connection=connection).as_sql()
        name = _quoted(compiler, self.table_alias or self.table_name)
        return f"({sql}) {name}", tuple(parameters)

    def relabeled_clone(self, change_map: dict[str | None, str]) -> "_Rows":
        alias = change_map.get(self.table_alias, self.table_alias)
        return _Rows(self._rows, self.table_name, alias)


def _quoted(compiler: Any, name: str) -> str:
    """Quote the name of a table or alias as the compiler does where columns refer to it."""
    if django.VERSION >= (6, 1):
        return str(compiler.quote_name(name))
    # Deprecated since Django 6.1, which quotes every alias; earlier versions quote none.
    return str(compiler.quote_name_unless_alias(name))


def first_rows(found: QuerySet[T], limit: int) -> QuerySet[T]:
    """Return a query of the first `limit` rows of a query, in its order, to be filtered further."""
    ordered = found.query.order_by
    rows = found.model._base_manager.using(found.db).order_by(*ordered)
    alias = rows.query.get_initial_alias()
    rows.query.alias_map[alias] = _Rows(found[:limit].query, found.model._meta.db_table, alias)
    return rows

"""JSON containment: whether a JSON column has a value at a path, as SQL of each database."""

import re
from dataclasses import dataclass
from typing import Any, Literal

from django.db.models import BooleanField, Func

from django_ojs.spec import json

Scalar = str | int | float | bool | None

_is_index = re.compile(r"[+-]?\d+").fullmatch
_TYPES = {str: ("text",), int: ("integer", "real"), float: ("integer", "real")}


@dataclass(frozen=True, kw_only=True, slots=True)
class JSONMatch:
    """One of `values`, at a path in a job's `args` or `meta`, or among its `tags`.

    In `args`, which is a list, the path begins in any item, or in the item whose index is the first
    part of the path. No key contains a double quote. If the path begins with the name of a
    handler's parameter, jobs of some types have it at an index: `positions` are pairs of type and
    index.
    """

    column: Literal["args", "meta", "tags"]
    path: tuple[str, ...]
    values: tuple[Scalar, ...]
    positions: tuple[tuple[str, int], ...] = ()

    @property
    def has_index(self) -> bool:
        """Whether the path begins with the index of an argument."""
        first = self.path[0] if self.path else ""
        return self.column == "args" and first.isascii() and first.isdecimal() and len(first) < 7

    @property
    def is_containment(self) -> bool:
        """Whether each column with the value contains its `document`.

        This is not so if a part of the path may be the index of a list in an argument.
        """
        return not self.has_index or not any(map(_is_index, self.path[1:]))

    def document(self, value: Scalar) -> str:
        """Return the smallest document that has a value at the path, as JSON."""
        found: Any = value
        for key in reversed(self.path[1:] if self.has_index else self.path):
            found = {key: found}
        if self.column == "tags":
            return json.dumps({"tags": [found]})
        return json.dumps([found] if self.column == "args" else found)


class JSONContains(Func):
    """The condition that a job has what a `JSONMatch` describes."""

    output_field = BooleanField()

    def __init__(self, match: JSONMatch, *expressions: Any, **extra: Any) -> None:
        column = "options" if match.column == "tags" else match.column
        super().__init__(*expressions or (column,), **extra)
        self.match = match

    def __repr__(self) -> str:
        return f"JSONContains({self.match!r})"

    def as_sql(self, compiler: Any, connection: Any, *args: Any, **extra: Any) -> Any:
        """Use the containment operator; it does not extract the value (PostgreSQL).

        For an index in `args`, the value is also extracted, from jobs that contain it.
        """
        column, given = compiler.compile(self.source_expressions[0])
        parts: list[str] = []
        params: list[Any] = []
        for value in self.match.values:
            tests: list[str] = []
            if self.match.is_containment:
                tests.append(f"{column} @> %s::jsonb")
                params += [*given, self.match.document(value)]
            if self.match.has_index:
                tests.append(f"{column} #> %s::text[] = %s::jsonb")
                params += [*given, list(self.match.path), json.dumps(value)]
            parts.append(" AND ".join(tests))
        return f"({' OR '.join(parts)})", params

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        """Extract the value, and compare its JSON type too: an extracted value has lost it."""
        column, given = compiler.compile(self.source_expressions[0])
        keys = self.match.path[1:] if self.match.has_index else self.match.path
        below = "".join(f'."{key}"' for key in keys)
        start = f"$[{self.match.path[0]}]" if self.match.has_index else "$"
        if self.match.column != "meta" and not self.match.has_index:
            listed = "'$.tags'" if self.match.column == "tags" else "'$'"
            test, params = _any_of(self.match.values, "each.fullkey || %s", below, column, given)
            subquery = f"SELECT 1 FROM JSON_EACH({column}, {listed}) AS each WHERE {test}"
            return f"EXISTS ({subquery})", [*given, *params]
        return _any_of(self.match.values, "%s", start + below, column, given)


def _any_of(
    values: tuple[Scalar, ...], at: str, path: str, column: str, given: Any
) -> tuple[str, list[Any]]:
    parts: list[str] = []
    params: list[Any] = []
    for value in values:
        if value is None or isinstance(value, bool):
            parts.append(f"JSON_TYPE({column}, {at}) = %s")
            params += [*given, path, json.dumps(value)]
            continue
        types = _TYPES[type(value)]
        marks = ", ".join(["%s"] * len(types))
        parts.append(
            f"(JSON_TYPE({column}, {at}) IN ({marks}) AND JSON_EXTRACT({column}, {at}) = %s)"
        )
        params += [*given, path, *types, *given, path, value]
    return f"({' OR '.join(parts)})", params

"""Whether a JSON column holds a value at a path, as SQL of each database."""

from dataclasses import dataclass
from typing import Any, Literal

from django.db.models import BooleanField, Func

from django_ojs.spec import json

Scalar = str | int | float | bool | None

_TYPES = {str: ("text",), int: ("integer", "real"), float: ("integer", "real")}


@dataclass(frozen=True, kw_only=True, slots=True)
class JSONMatch:
    """One of `values`, at a path in a job's `args` or `meta`, or among its `tags`.

    In `args`, which is a list, the path begins in any of its items; or in the one whose number
    begins the path. Its keys hold no double quotes.
    """

    column: Literal["args", "meta", "tags"]
    path: tuple[str, ...]
    values: tuple[Scalar, ...]

    @property
    def numbered(self) -> bool:
        """Whether it names an argument by its place."""
        first = self.path[0] if self.path else ""
        return self.column == "args" and first.isascii() and first.isdecimal() and len(first) < 7

    def document(self, value: Scalar) -> str:
        """Return the least document that holds a value there, as JSON."""
        found: Any = value
        for key in reversed(self.path):
            found = {key: found}
        if self.column == "tags":
            return json.dumps({"tags": [found]})
        return json.dumps([found] if self.column == "args" else found)


class JSONContains(Func):
    """Whether a column of the job has a value; see `JSONMatch`."""

    output_field = BooleanField()

    def __init__(self, held: JSONMatch, *expressions: Any, **extra: Any) -> None:
        column = "options" if held.column == "tags" else held.column
        super().__init__(*expressions or (column,), **extra)
        self._held = held

    def __repr__(self) -> str:
        return f"JSONContains({self._held!r})"

    def as_sql(self, compiler: Any, connection: Any, *args: Any, **extra: Any) -> Any:
        """Ask for containment, which needs no look at the values beside it (PostgreSQL)."""
        column, given = compiler.compile(self.source_expressions[0])
        parts: list[str] = []
        params: list[Any] = []
        for value in self._held.values:
            if self._held.numbered:
                parts.append(f"{column} #> %s::text[] = %s::jsonb")
                params += [*given, list(self._held.path), json.dumps(value)]
            else:
                parts.append(f"{column} @> %s::jsonb")
                params += [*given, self._held.document(value)]
        return f"({' OR '.join(parts)})", params

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        """Go to the path; what SQLite takes out of JSON has lost its type, so that is asked for."""
        column, given = compiler.compile(self.source_expressions[0])
        keys = self._held.path[1:] if self._held.numbered else self._held.path
        below = "".join(f'."{key}"' for key in keys)
        start = f"$[{self._held.path[0]}]" if self._held.numbered else "$"
        if self._held.column != "meta" and not self._held.numbered:
            listed = "'$.tags'" if self._held.column == "tags" else "'$'"
            test, params = _any_of(self._held.values, "each.fullkey || %s", below, column, given)
            look = f"SELECT 1 FROM JSON_EACH({column}, {listed}) AS each WHERE {test}"
            return f"EXISTS ({look})", [*given, *params]
        return _any_of(self._held.values, "%s", start + below, column, given)


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

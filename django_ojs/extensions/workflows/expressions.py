"""SQL expressions about steps of workflows, whose text differs between databases."""

from collections.abc import Collection
from typing import Any
from uuid import UUID

from django.db.models import BooleanField, Func, Value

from django_ojs.spec import json
from django_ojs.storage.dialects.expressions import as_array


class AtPlaces(Func):
    """Whether a step is at one of these places: pairs of a workflow's id and a position."""

    output_field = BooleanField()
    template = "(workflow_id, position) IN (SELECT * FROM %(expressions)s)"

    def __init__(self, places: Collection[tuple[UUID, int]]) -> None:
        super().__init__(_Places(list(places)))

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        """Take the pairs out of a JSON array."""
        template = self.template.replace("*", "value ->> 0, value ->> 1")
        return self.as_sql(compiler, connection, template=template, **extra)

    def as_mysql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        """Compare with a list of pairs, which the driver writes."""
        template = "(workflow_id, position) IN %(expressions)s"
        return self.as_sql(compiler, connection, template=template, **extra)


class _Places(Value):
    def as_sql(self, compiler: Any, connection: Any) -> Any:
        keys, positions = zip(*self.value, strict=True)
        return "unnest(%s::uuid[], %s::int[])", [as_array(keys), list(positions)]

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return "json_each(%s)", [json.dumps([[key.hex, at] for key, at in self.value])]

    def as_mysql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        places = self.value or [(UUID(int=0), 0)]
        return "%s", [[(str(key), at) for key, at in places]]

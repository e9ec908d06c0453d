"""A JSON column that returns exactly the stored value."""

from typing import Any

from django.db import models
from django.db.models.fields.json import KeyTransform

from django_ojs.conf import settings
from django_ojs.spec import json
from django_ojs.storage import database


class StoredJSONField(models.JSONField):
    """Django's JSONField, all lookups included, except that a large float stays a float.

    PostgreSQL writes the 1e300 of a jsonb value as an integer of 301 digits.
    """

    def db_type(self, connection: Any) -> str | None:
        return _own_type(connection) or super().db_type(connection)

    def db_check(self, connection: Any) -> str | None:
        return None if _own_type(connection) else super().db_check(connection)

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        if not isinstance(value, str) or isinstance(expression, KeyTransform):
            return super().from_db_value(value, expression, connection)
        return json.loads_stored(value, exact_integers=settings().exact_integers)


def _own_type(connection: Any) -> str | None:
    dialect = database.of_vendor(connection.vendor)
    return None if dialect is None else dialect.json_type

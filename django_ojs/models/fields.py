"""A JSON column that returns exactly the stored value."""

from typing import Any

from django.db import models
from django.db.models.fields.json import KeyTransform

from django_ojs.conf import settings
from django_ojs.spec import json


class StoredJSONField(models.JSONField):
    """Django's JSONField, all lookups included, except that a large float stays a float.

    PostgreSQL writes the 1e300 of a jsonb value as an integer of 301 digits. On MariaDB JSON is a
    text that stays as it is; its type of that name would reject what is nested more than 32 deep.
    """

    def db_type(self, connection: Any) -> str | None:
        return "longtext" if connection.vendor == "mysql" else super().db_type(connection)

    def db_check(self, connection: Any) -> str | None:
        return None if connection.vendor == "mysql" else super().db_check(connection)

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        if not isinstance(value, str) or isinstance(expression, KeyTransform):
            return super().from_db_value(value, expression, connection)
        return json.loads_stored(value, exact_integers=settings().exact_integers)

"""Words of JSON Schema that descriptions are written in."""

from collections.abc import Sequence
from typing import Any, Final

from django_ojs.spec.envelope import MAX_TIMEOUT_MS

Schema = dict[str, Any]

STRING: Final[Schema] = {"type": "string"}
BOOLEAN: Final[Schema] = {"type": "boolean"}
INTEGER: Final[Schema] = {"type": "integer"}
NUMBER: Final[Schema] = {"type": "number"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
OBJECT: Final[Schema] = {"type": "object"}
TIMESTAMP: Final[Schema] = {
    "type": "string",
    "format": "date-time",
    "examples": ["2030-01-31T09:30:00.000Z"],
}
MILLISECONDS: Final[Schema] = {"type": "integer", "minimum": 1, "maximum": MAX_TIMEOUT_MS}
JOB_ID: Final[Schema] = {
    "type": "string",
    "pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$",
    "description": "A UUIDv7 in lowercase.",
    "examples": ["019461a8-1a2b-7c3d-8e4f-5a6b7c8d9e0f"],
}
QUEUE_NAME: Final[Schema] = {
    "type": "string",
    "minLength": 1,
    "maxLength": 255,
    "pattern": r"^[a-z0-9][a-z0-9\-.]*$",
    "examples": ["default"],
}
JOB_TYPE: Final[Schema] = {
    "type": "string",
    "minLength": 1,
    "maxLength": 255,
    "pattern": r"^[a-z][a-z0-9_\-]*(\.[a-z][a-z0-9_\-]*)*$",
    "examples": ["email.send"],
}


def ref(name: str) -> Schema:
    """Refer to a component."""
    return {"$ref": f"#/components/schemas/{name}"}


#: Any JSON that every database and every language can carry.
ANY: Final = ref("Value")


def object_(properties: dict[str, Schema], required: Sequence[str] = (), **more: Any) -> Schema:
    """Describe an object. Fields that are not named may be there too."""
    out: Schema = {"type": "object", "properties": properties, **more}
    if required:
        out["required"] = list(required)
    return out


def answer(**properties: Schema) -> Schema:
    """Describe an object of an answer whose named fields are all there."""
    return object_(properties, list(properties))


def array(items: Schema, **more: Any) -> Schema:
    """Describe an array."""
    return {"type": "array", "items": items, **more}


def enum(*values: str) -> Schema:
    """Describe a string that is one of these."""
    # str: YAML knows no members of an enumeration.
    return {"type": "string", "enum": [str(value) for value in values]}


def optional(schema: Schema) -> Schema:
    """Let a field of a request be null, which is the same as leaving it out."""
    if isinstance(schema.get("type"), str) and not {"enum", "format"} & schema.keys():
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def about(schema: Schema, text: str) -> Schema:
    """Describe in words as well."""
    return {**schema, "description": text}

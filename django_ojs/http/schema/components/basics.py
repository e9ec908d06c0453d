"""Errors, lists, and JSON itself."""

from typing import Final

from django_ojs.http.schema.values import (
    BOOLEAN,
    OBJECT,
    STRING,
    Schema,
    about,
    answer,
    array,
    object_,
    ref,
)
from django_ojs.spec.strict import MAX_INTEGER

SCHEMAS: Final[dict[str, Schema]] = {
    "Value": {
        "description": (
            "Any JSON value, within limits: no NUL and no lone surrogate in a string, integers "
            f"from -{MAX_INTEGER} to {MAX_INTEGER}, 64 levels."
        ),
        "anyOf": [
            {"type": ["null", "boolean", "string"]},
            {"type": "integer", "minimum": -MAX_INTEGER, "maximum": MAX_INTEGER},
            {"type": "number", "minimum": -1e300, "maximum": 1e300},
            array(ref("Value")),
            {"type": "object", "additionalProperties": ref("Value")},
        ],
    },
    "Duration": {
        "type": "string",
        "description": "ISO 8601, or a short form. A fraction may stand in the last part.",
        "pattern": (
            r"^(?:P(?!$)(?!.*[.,][0-9]+[A-Z]T?[0-9])"
            r"(?:[0-9]{1,2}(?:[.,][0-9]{1,9})?Y)?(?:[0-9]{1,3}(?:[.,][0-9]{1,9})?M)?"
            r"(?:[0-9]{1,3}(?:[.,][0-9]{1,9})?W)?(?:[0-9]{1,5}(?:[.,][0-9]{1,9})?D)?"
            r"(?:T(?!$)(?:[0-9]{1,6}(?:[.,][0-9]{1,9})?H)?"
            r"(?:[0-9]{1,7}(?:[.,][0-9]{1,9})?M)?(?:[0-9]{1,9}(?:[.,][0-9]{1,9})?S)?)?"
            r"|[0-9]{1,5}(?:[.,][0-9]{1,9})?(?:ms|s|m|h|d))$"
        ),
        "examples": ["PT30S", "PT5M", "500ms"],
    },
    "When": {
        "description": "A moment with an offset, or a time from now such as `+PT5M`.",
        "anyOf": [
            {"type": "string", "format": "date-time"},
            {"type": "string", "pattern": r"^\+PT[1-9][0-9]{0,6}[HMS]$"},
        ],
    },
    "ErrorAnswer": answer(error=ref("Error")),
    "Error": object_(
        {
            "code": about(STRING, "What programs look at."),
            "message": about(STRING, "Names the field and the rule; never a value."),
            "retryable": about(BOOLEAN, "Whether the same request may succeed later."),
            "details": OBJECT,
            "request_id": STRING,
            "type": about(STRING, "The name that another document has for the same condition."),
            "hint": STRING,
            "docs_url": {"type": "string", "format": "uri"},
        },
        ["code", "message", "retryable", "details", "request_id"],
    ),
}

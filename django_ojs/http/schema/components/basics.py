"""Errors, lists, and JSON itself."""

from typing import Final

from django_ojs.http.schema.values import (
    BOOLEAN,
    COUNT,
    OBJECT,
    STRING,
    Schema,
    about,
    answer,
    object_,
    ref,
)
from django_ojs.spec.queue_config import STRATEGIES
from django_ojs.spec.strict import MAX_DEPTH, MAX_INTEGER

SCHEMAS: Final[dict[str, Schema]] = {
    "Value": {
        "description": (
            "Any JSON value, within limits: no NUL and no lone surrogate in a string, integers "
            f"from -{MAX_INTEGER} to {MAX_INTEGER}, {MAX_DEPTH} levels."
        )
    },
    "Duration": {
        "type": "string",
        "description": "Longer than zero, in ISO 8601 or short. The last part may have a fraction.",
        "pattern": (
            r"^(?=.*[1-9])(?:P(?!$)(?!.*[.,][0-9]+[A-Z]T?[0-9])"
            r"(?:[0-9]{1,2}(?:[.,][0-9]{1,6})?Y)?(?:[0-9]{1,3}(?:[.,][0-9]{1,6})?M)?"
            r"(?:[0-9]{1,3}(?:[.,][0-9]{1,6})?W)?(?:[0-9]{1,5}(?:[.,][0-9]{1,6})?D)?"
            r"(?:T(?!$)(?:[0-9]{1,6}(?:[.,][0-9]{1,6})?H)?"
            r"(?:[0-9]{1,7}(?:[.,][0-9]{1,6})?M)?(?:[0-9]{1,9}(?:[.,][0-9]{1,6})?S)?)?"
            r"|[0-9]{1,5}ms|[0-9]{1,5}(?:[.,][0-9]{1,6})?[smhd])$"
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
            "queue": about(STRING, "With QUEUE_FULL, here and in `details`."),
            "depth": about(COUNT, "Jobs that wait in it, or their bytes."),
            "bound": about(COUNT, "How many may wait in it."),
            "strategy": {"type": "string", "enum": list(STRATEGIES)},
        },
        ["code", "message", "retryable", "details", "request_id"],
    ),
}

"""Headers of requests and answers (http-binding §3.2, §6.5, §19)."""

from typing import Any, Final

from django_ojs.http.backpressure import LONGEST_BLOCK
from django_ojs.http.headers import VERSION, VERSIONS
from django_ojs.http.schema.values import COUNT, NUMBER, STRING, Schema

_REQUEST_ID: Final = {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"}


def _header(text: str, schema: Schema, *, required: bool = False) -> dict[str, Any]:
    return {"description": text, "required": required, "schema": schema}


def _parameter(name: str, text: str, schema: Schema) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": text, "schema": schema}


HEADERS: Final = {
    "OJS-Version": _header(
        "The version that is spoken here.", {"type": "string", "const": VERSION}, required=True
    ),
    "X-Request-Id": _header(
        "The request's own id, or one made for it.", _REQUEST_ID, required=True
    ),
    "Location": _header("The path of the job.", STRING),
    "X-OJS-Progress": _header("The share of the work that is done.", NUMBER),
    "Last-Modified": _header("When progress was reported last.", STRING),
    "Retry-After": _header(
        "Seconds after which asking again makes sense.", {"type": "integer", "minimum": 1}
    ),
    "WWW-Authenticate": _header("How to be known.", STRING),
    "X-OJS-Queue-Depth": _header("Jobs that wait in the queue, or their bytes.", COUNT),
    "X-OJS-Queue-Bound": _header("How many may wait in it.", COUNT),
    "X-OJS-Queue-Pressure": _header(
        "Depth divided by bound.", {"type": "number", "minimum": 0, "maximum": 1}
    ),
}

PARAMETERS: Final = {
    "OJS-Version": _parameter(
        "OJS-Version",
        f"Refused with 422 unless it is {VERSION} or left out.",
        {"type": "string", "enum": sorted(VERSIONS)},
    ),
    "X-Request-Id": _parameter(
        "X-Request-Id",
        "Comes back with the answer. What is no 1 to 200 visible ASCII characters is replaced.",
        STRING,
    ),
    "OJS-Block-Timeout": _parameter(
        "OJS-Block-Timeout",
        "Seconds to wait for room in a queue with the strategy `block`; without it the answer "
        f"comes at once. More than {LONGEST_BLOCK} count as {LONGEST_BLOCK}.",
        {"type": "integer", "minimum": 0, "maximum": 999_999_999, "default": 0},
    ),
}

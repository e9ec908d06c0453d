"""What the API accepts beside what its document says, added to the document for Schemathesis.

Generators of clients understand neither alternatives nor conditions, so the document says each
thing in one way. Null means the same as leaving a field of a request out; that is added too.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

Schema = dict[str, Any]

_NULL: Schema = {"type": "null"}
_DURATION: Schema = {"$ref": "#/components/schemas/Duration"}
#: Of at most 24 days, which is what a timeout may be.
_SHORT_DURATION: Schema = {
    "type": "string",
    "pattern": (
        r"^(?:P(?!$)(?:[0-9]D)?"
        r"(?:T(?!$)(?:[0-9]{1,2}H)?(?:[0-9]{1,4}M)?(?:[0-9]{1,5}(?:[.,][0-9]{1,3})?S)?)?"
        r"|[0-9]{1,5}(?:ms|s)|[0-9]{1,4}m|[0-9]{1,2}h|[0-9]d)$"
    ),
}


def _needs(**properties: Schema) -> Schema:
    """Require these properties, which must not be null."""
    return {"required": list(properties), "properties": properties}


_OBJECT: Schema = {"type": "object"}
_ARRAY: Schema = {"type": "array"}
_TEXT: Schema = {"type": "string", "minLength": 1}
_NUMBER: Schema = {"type": "number"}

#: What is true of a schema as well.
_CONDITIONS: dict[str, Schema] = {
    "Confirm": {"const": True},
    "CronJobRequest": {
        "allOf": [
            {"anyOf": [_needs(cron=_TEXT), _needs(expression=_TEXT)]},
            {"anyOf": [_needs(type=_TEXT), _needs(job_template=_OBJECT)]},
        ]
    },
    "FailRequest": {"anyOf": [_needs(error=_OBJECT), _needs(requeue={"const": True})]},
    "Failure": {"anyOf": [_needs(type=_TEXT), _needs(code=_TEXT)]},
    "FailureOfJob": {"anyOf": [_needs(error=_OBJECT), _needs(requeue={"const": True})]},
    "FetchRequest": {
        "anyOf": [_needs(queues=_ARRAY), _needs(pool=_TEXT, worker_id={"type": "string"})]
    },
    "ProgressRequest": {
        "anyOf": [
            _needs(progress=_NUMBER),
            _needs(data=_OBJECT),
            _needs(message={"type": "string"}),
        ]
    },
    "QueueDeletion": {
        "oneOf": [
            {
                "properties": {
                    "strategy": {"enum": ["reject", "discard", None]},
                    "target_queue": _NULL,
                }
            },
            _needs(strategy={"const": "move"}, target_queue={"type": "string"}),
        ]
    },
    "WorkflowRequest": {"anyOf": [_needs(steps=_ARRAY), _needs(jobs=_ARRAY)]},
}
_CONDITIONS["WorkerProgressRequest"] = _CONDITIONS["ProgressRequest"]

#: Schemas that are more, or less, than the document says.
_INSTEAD: dict[str, Schema] = {
    "TimeoutPeriod": {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 2147483}, _DURATION]},
    "When": {
        "anyOf": [
            {"type": "string", "format": "date-time"},
            {"type": "string", "pattern": r"^\+PT[1-9][0-9]{0,6}[HMS]$"},
        ]
    },
}
#: Values that are accepted as well.
_ALSO: dict[str, Schema] = {
    "RetryRequest": {"type": "integer", "minimum": 0, "maximum": 2147483647},
    "Timeout": _SHORT_DURATION,
    "TimeoutMs": _SHORT_DURATION,
}
#: Values of a property that are accepted as well.
_ALSO_OF: dict[tuple[str, str], Schema] = {
    ("BulkFilter", "state"): {"$ref": "#/components/schemas/JobState"},
    ("JobOptions", "delay_until"): {"type": "string", "pattern": "^PT[1-9][0-9]{0,6}[HMS]$"},
    ("JobRequest", "delay_until"): {"type": "string", "pattern": "^PT[1-9][0-9]{0,6}[HMS]$"},
    ("WorkerBeat", "active_jobs"): {"$ref": "#/components/schemas/Integer32"},
}
#: Properties that the document does not name.
_UNNAMED: dict[str, dict[str, Schema]] = {
    "ProgressRequest": {"percentage": _NUMBER, "percent": _NUMBER},
    "WorkerProgressRequest": {"percentage": _NUMBER, "percent": _NUMBER},
}


def tolerant(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with all that is accepted, and with what it says in words alone."""
    document = deepcopy(document)
    schemas = document["components"]["schemas"]
    schemas["ArgumentKeys"]["items"] = {
        "anyOf": [
            {"$ref": "#/components/schemas/Text"},
            {"type": "integer", "minimum": 0, "maximum": 9999999},
        ]
    }
    schemas |= _INSTEAD
    for (name, member), also in _ALSO_OF.items():
        properties = schemas[name]["properties"]
        properties[member] = {"anyOf": [properties[member], also]}
    for name, more in _UNNAMED.items():
        schemas[name]["properties"] |= more
    config = schemas["QueueConfigRequest"]["properties"]
    for name, member in (("tenant_limits", "tenants"), ("tenant_fairness", "weights")):
        values = config[name]["properties"][member]
        values["additionalProperties"] = {"anyOf": [values["additionalProperties"], _NULL]}
    for name in requests_of(document):
        _accept_null(schemas[name])
    for name, condition in _CONDITIONS.items():
        schemas[name] |= condition
    for name, also in _ALSO.items():
        schemas[name] = {"anyOf": [schemas[name], also]}
    return document


def requests_of(document: dict[str, Any]) -> set[str]:
    """Return the names of the schemas that a body of a request has."""
    bodies = [
        operation["requestBody"]
        for item in document["paths"].values()
        for method, operation in item.items()
        if method != "parameters" and "requestBody" in operation
    ]
    return schemas_in(document, bodies)


def schemas_in(document: dict[str, Any], waiting: list[Any]) -> set[str]:
    """Return the names of the schemas that these parts of the document have, and their parts."""
    found: set[str] = set()
    while waiting:
        for name in _references(waiting.pop()) - found:
            found.add(name)
            waiting.append(document["components"]["schemas"][name])
    return found


def _references(node: Any) -> set[str]:
    if isinstance(node, list):
        return set().union(*map(_references, node)) if node else set()
    if not isinstance(node, dict):
        return set()
    found = set().union(*map(_references, node.values())) if node else set()
    reference = node.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/components/schemas/"):
        found.add(reference.rpartition("/")[2])
    return found


def _accept_null(schema: Any) -> None:
    """Let each property that is not required be null."""
    if isinstance(schema, list):
        for each in schema:
            _accept_null(each)
    elif isinstance(schema, dict):
        for each in schema.values():
            _accept_null(each)
        properties = schema.get("properties", {})
        if not isinstance(schema.get("type"), str):
            return
        for name in properties.keys() - set(schema.get("required", ())):
            properties[name] = {"anyOf": [properties[name], _NULL]}

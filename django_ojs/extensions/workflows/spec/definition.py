"""The fields of a workflow's definition; each error names the path and the rule."""

import re
from collections.abc import Mapping
from typing import Any, Final, cast
from uuid import UUID

from django_ojs.extensions.workflows.spec.graph import CALLBACKS, CallbackName, WorkflowType
from django_ojs.spec import envelope, ids
from django_ojs.spec.envelope import Limits
from django_ojs.spec.errors import InvalidRequest, OJSError
from django_ojs.spec.json import check

MAX_NAME: Final = 255

_PREFIX: Final = "wf_"
_CLIENT_ID: Final = re.compile(r"[A-Za-z0-9._:~\-]+")

#: The name of the list of each type: the specification's, then the one that some clients use.
_LISTS: Final = {"chain": ("steps", "jobs"), "group": ("jobs", "steps"), "batch": ("jobs", "steps")}
#: Members that describe a step and are not part of its job.
_OF_STEP: Final = frozenset({"id", "name", "depends_on", "callback"})


def at(path: str, attribute: str) -> str:
    """Return the path of an attribute of the object at a path; "" is the workflow itself."""
    return f"{path}.{attribute}" if path else attribute


def is_nested(item: Mapping[str, Any]) -> bool:
    """Return whether a step is a nested workflow, and not a job of a type such as "chain"."""
    return _is_type(item.get("type")) and "args" not in item


def _is_type(value: object) -> bool:
    # An array or an object cannot be hashed.
    return isinstance(value, str) and value in _LISTS


def type_of(data: Mapping[str, Any], path: str) -> WorkflowType:
    if not _is_type(data.get("type")):
        raise InvalidRequest.of(
            at(path, "type"),
            "must be chain, group or batch",
            hint="Leave it out for steps with id and depends_on.",
        )
    return cast("WorkflowType", data["type"])


def list_of(data: Mapping[str, Any], names: tuple[str, ...], path: str) -> tuple[str, list[Any]]:
    """Return the path and the items of a list that must not be empty."""
    name = next((name for name in names if data.get(name) is not None), names[0])
    found, place = data.get(name), at(path, name)
    if found is None:
        raise InvalidRequest.of(place, "is required")
    if not isinstance(found, list):
        raise InvalidRequest.of(place, "must be an array")
    if not found:
        raise InvalidRequest.of(place, "must contain at least one element")
    return place, found


def parts_of(data: Mapping[str, Any], path: str) -> tuple[str, list[Any]]:
    """Return the path and the items of a chain, group or batch."""
    return list_of(data, _LISTS[type_of(data, path)], path)


def callbacks_of(data: Mapping[str, Any], path: str) -> dict[CallbackName, Any]:
    """Return the callbacks of a batch by name, in the order of CALLBACKS."""
    place = at(path, "callbacks")
    given = object_of(data, "callbacks", path)
    names = ", ".join(CALLBACKS)
    for name in given:
        if name not in CALLBACKS:
            raise InvalidRequest.of(place, f"must hold only {names}")
    found = {name: given[name] for name in CALLBACKS if given.get(name) is not None}
    if not found:
        raise InvalidRequest.of(place, f"must hold at least one of {names}")
    return found


def object_of(data: Mapping[str, Any], name: str, path: str) -> dict[str, Any]:
    """Return an attribute that is an object, or an empty object if it is absent."""
    value = data.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidRequest.of(at(path, name), "must be an object")
    return value


def text_of(data: Mapping[str, Any], name: str, path: str) -> str | None:
    """Return an attribute that is a short string, or None if it is absent."""
    value, place = data.get(name), at(path, name)
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        raise InvalidRequest.of(place, "must be a non-empty string")
    if len(value) > MAX_NAME:
        raise InvalidRequest.of(place, f"must be at most {MAX_NAME} characters long")
    check(value, place, error=InvalidRequest)
    return value


def id_of(data: Mapping[str, Any]) -> tuple[UUID | None, str | None]:
    """Return the id that the client gave a workflow: a UUIDv7, another text, or neither."""
    given = text_of(data, "id", "")
    if given is None:
        return None, None
    if (found := known_id(given)) is not None:
        return found, None
    # The id is a part of the workflow's URL.
    if not _CLIENT_ID.fullmatch(given):
        raise InvalidRequest.of("id", "must be a UUIDv7, or letters, digits and any of ._:~-")
    return None, given


def known_id(text: str) -> UUID | None:
    """Return the UUIDv7 in an id of a workflow, which may have the specification's prefix."""
    try:
        return ids.parse_id(text.removeprefix(_PREFIX))
    except InvalidRequest:
        return None


def name_of(item: Mapping[str, Any], path: str) -> str | None:
    """Return what a client calls a step: its id, or else its name."""
    return text_of(item, "id", path) or text_of(item, "name", path)


def job_of(
    item: Mapping[str, Any], options: Mapping[str, Any], path: str, limits: Limits
) -> dict[str, Any]:
    """Return the checked envelope of a step, completed by the workflow's options."""
    job = {name: value for name, value in item.items() if name not in _OF_STEP}
    own = object_of(item, "options", path)
    if own or options:
        # Members at the top level of the step win over the workflow's options.
        defaults = {name: value for name, value in options.items() if name not in job}
        job["options"] = {**defaults, **own}
    try:
        envelope.validate(envelope.parse(job, limits=limits), limits)
    except OJSError as error:
        raise located(error, path) from None
    return job


def located(error: OJSError, path: str) -> OJSError:
    """Return the error of a job with the path of its step before the name of the field."""
    field = error.details.get("field")
    named = isinstance(field, str) and error.message.startswith(field)
    message = f"{path}.{error.message}" if named else f"{path}: {error.message}"
    details = {**error.details, "field": at(path, field) if isinstance(field, str) else path}
    return type(error)(message, details=details, hint=error.hint)

"""A filter as JSON, as a bulk operation stores it."""

from dataclasses import fields
from datetime import datetime, timedelta
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints
from uuid import UUID

from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.spec.states import State
from django_ojs.storage.dialects.json_contains import JSONMatch

_MILLISECOND = timedelta(milliseconds=1)


def render(which: JobFilter) -> dict[str, Any]:
    """Return the conditions of a filter, for `read`."""
    values = {each.name: getattr(which, each.name) for each in fields(which)}
    return {name: _rendered(value) for name, value in values.items() if value not in (None, ())}


def _rendered(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value // _MILLISECOND
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, JSONMatch):
        return {each.name: _rendered(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return [_rendered(each) for each in value]
    return value


def read(rendered: dict[str, Any]) -> JobFilter:
    """Return the filter that `render` was given."""
    return JobFilter(**_read_fields(JobFilter, rendered))


def _read_fields(of: type, rendered: dict[str, Any]) -> dict[str, Any]:
    kinds = get_type_hints(of)
    return {name: _read(kinds[name], value) for name, value in rendered.items()}


def _read(kind: Any, value: Any) -> Any:
    """Return the value of a field of this type."""
    if isinstance(kind, UnionType):  # A union with None, which is not stored.
        kind = get_args(kind)[0]
    if kind is datetime:
        return datetime.fromisoformat(value)
    if kind is timedelta:
        return timedelta(milliseconds=value)
    if kind is JSONMatch:
        return JSONMatch(**_read_fields(JSONMatch, value))
    if kind in (State, UUID):
        return kind(value)
    container, of = get_origin(kind), get_args(kind)
    if container is tuple and ... not in of:
        return tuple(map(_read, of, value))
    if container in (tuple, frozenset):
        return container(_read(of[0], each) for each in value)
    return value

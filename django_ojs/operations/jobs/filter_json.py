"""A filter as JSON, as a bulk operation stores it."""

from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any, cast
from uuid import UUID

from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.spec.states import State
from django_ojs.storage.dialects.json_contains import JSONMatch

_TIMES = frozenset({"since", "until", "ended_since", "ended_until", "at"})
_DURATIONS = frozenset({"ran_over", "ran_under", "waited_over", "waited_under"})
_NAMES = frozenset({"tags", "queues", "not_queues", "not_types"})
_MILLISECOND = timedelta(milliseconds=1)


def render(which: JobFilter) -> dict[str, Any]:
    """Return the conditions of a filter, for `read`."""
    rendered: dict[str, Any] = {}
    for each in fields(JobFilter):
        value = getattr(which, each.name)
        if value in (None, ()):
            continue
        rendered[each.name] = _rendered(value)
    return rendered


def _rendered(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value // _MILLISECOND
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, JSONMatch):
        positions = [list(each) for each in value.positions]
        return {
            "column": value.column,
            "path": list(value.path),
            "values": list(value.values),
            **({"positions": positions} if positions else {}),
        }
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return [_rendered(each) for each in value]
    return value


def read(rendered: dict[str, Any]) -> JobFilter:
    """Return the filter that `render` was given."""
    values: dict[str, Any] = dict(rendered)
    for name in _TIMES & values.keys():
        values[name] = datetime.fromisoformat(values[name])
    for name in _DURATIONS & values.keys():
        values[name] = timedelta(milliseconds=values[name])
    if "states" in values:
        values["states"] = tuple(State(state) for state in values["states"])
    if "ids" in values:
        values["ids"] = tuple(UUID(key) for key in values["ids"])
    for name in ("parent_id", "workflow_id"):
        if name in values:
            values[name] = UUID(values[name])
    for name in _NAMES & values.keys():
        values[name] = tuple(values[name])
    if "by_extensions" in values:
        values["by_extensions"] = tuple((name, value) for name, value in values["by_extensions"])
    if "within" in values:
        values["within"] = frozenset(values["within"])
    if "held" in values:
        values["held"] = tuple(_held(each) for each in values["held"])
    return JobFilter(**values)


def _held(rendered: dict[str, Any]) -> JSONMatch:
    return JSONMatch(
        column=cast("Any", rendered["column"]),
        path=tuple(rendered["path"]),
        values=tuple(rendered["values"]),
        positions=tuple((type, index) for type, index in rendered.get("positions", ())),
    )

"""Structured logs (ojs-logging): one JSON object a line, with the job that runs.

`LOGGING` names the classes, and is read before the apps are: this module imports no model.
"""

import logging
import math
import re
import sys
import traceback
from collections.abc import Collection, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final

from django_ojs.conf import settings
from django_ojs.spec import json
from django_ojs.spec.failure import clean

#: Attributes of a record that say which job it is about. The JSON object has them in `ojs`.
JOB_FIELDS: Final = (
    "job_id",
    "job_type",
    "queue",
    "attempt",
    "state",
    "worker_id",
    "correlation_id",
)
_TRACE_FIELDS: Final = ("trace_id", "span_id")

# The lowest level of each severity (§5.4).
_SEVERITIES: Final = (
    (logging.CRITICAL, "FATAL", 21),
    (logging.ERROR, "ERROR", 17),
    (logging.WARNING, "WARN", 13),
    (logging.INFO, "INFO", 9),
    (logging.DEBUG, "DEBUG", 5),
)
#: The values of members with such a name are not logged (§9.1), at any depth.
_SENSITIVE: Final = re.compile(
    r"passw(or)?d|token|secret|authorization|api_?key|credential|cookie|^(job_)?(kw)?args$|^results?$",
    re.IGNORECASE,
)
REDACTED: Final = "[redacted]"

_RANDOM_DIGITS: Final = 12
_HEXADECIMAL: Final = re.compile(rf"[0-9a-f]{{{_RANDOM_DIGITS}}}").fullmatch
MAX_DEPTH: Final = 8
MAX_CHARACTERS: Final = 10_000

_STANDARD: Final = frozenset(
    {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "status", "reported"}
)

#: The name of the logger of the changes of state (see `extensions.signals.transition_log`).
TRANSITIONS: Final = "django_ojs.transitions"

_component = "server"


@contextmanager
def component(name: str) -> Iterator[None]:
    """Name the component of this process in its records, as the worker command does."""
    global _component
    before, _component = _component, name
    try:
        yield
    finally:
        _component = before


def is_worker() -> bool:
    """Say whether this is a process of the worker command."""
    return _component == "worker"


class JobContextFilter(logging.Filter):
    """Adds the running job to each record: job_id, job_type, queue, attempt, worker_id and others.

    Any formatter can use these, such as "%(job_id)s". Outside of a job they are empty. A handler
    that formats in another thread, where the job is not known, needs this filter as well.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the attributes that the record does not have."""
        found = _current_fields()
        for name in (*JOB_FIELDS, *_TRACE_FIELDS):
            if not hasattr(record, name):
                setattr(record, name, found.get(name, ""))
        return True


class SampleFilter(logging.Filter):
    """Keeps the records of one in `one_in` jobs (ojs-logging §8).

    Warnings and errors, records without a job, and the ends of runs are always kept; with
    `keep_ends` false, the ends of successful runs are sampled too. The id of the job decides, so
    that each process keeps all records of a job, or none.
    """

    def __init__(self, one_in: int, *, keep_ends: bool = True) -> None:
        super().__init__()
        if one_in < 1:
            raise ValueError("one_in must be at least 1, which keeps all records.")
        self._one_in = one_in
        self._keep_ends = keep_ends

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether the record is kept."""
        if record.levelno >= logging.WARNING or (self._keep_ends and hasattr(record, "status")):
            return True
        # Outside of a job, an earlier JobContextFilter has set an empty id.
        key = str(getattr(record, "job_id", "") or _current_fields().get("job_id", ""))
        # The end of a UUIDv7 is random, and its beginning is a time.
        digits = key[-_RANDOM_DIGITS:]
        return not _HEXADECIMAL(digits) or int(digits, 16) % self._one_in == 0


class JSONFormatter(logging.Formatter):
    """Formats a record as the JSON object of ojs-logging §5, without line breaks.

    The other values of `extra` are in `attributes`. The values of arguments, results and members
    that are named like secrets are replaced; `redact` names more such members.
    """

    def __init__(self, *args: Any, redact: Collection[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._redact = frozenset(redact)

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON."""
        given = _given(record)
        job = {**_current_fields(), **{name: value for name, value in given.items() if value}}
        severity, number = _severity(record.levelno)
        written: dict[str, Any] = {
            "timestamp": _timestamp(record.created),
            "severity": severity,
            "severity_number": number,
            "message": _text(record.getMessage()),
            "component": "worker" if "job_id" in job else _component,
        }
        if (category := _category(record)) is not None:
            written["category"] = category
        for member, names in (("ojs", JOB_FIELDS), ("trace", _TRACE_FIELDS)):
            if found := {name: self._value(job[name]) for name in names if name in job}:
                written[member] = found
        if error := self._error(record):
            written["error"] = error
        written["attributes"] = {"logger": record.name, **self._extra(record, given.keys())}
        return json.dumps(written)

    def _error(self, record: logging.LogRecord) -> dict[str, str]:
        error: dict[str, str] = {}
        kind = getattr(record, "error", None)
        if record.exc_info and record.exc_info[0] is not None:
            kind = kind or record.exc_info[0].__qualname__
            if settings().log_error_messages:
                error["message"] = _string(record.exc_info[1])
            error["backtrace"] = _backtrace(record.exc_info)
        return {"type": _text(str(kind)), **error} if kind else {}

    def _extra(self, record: logging.LogRecord, known: Set[str]) -> dict[str, Any]:
        unknown = vars(record).keys() - _STANDARD - known - {"error"}
        return {
            name: REDACTED if self._is_sensitive(name) else self._value(vars(record)[name])
            for name in sorted(unknown)
        }

    def _is_sensitive(self, name: str) -> bool:
        return name in self._redact or _SENSITIVE.search(name) is not None

    def _value(self, value: object, depth: int = 0) -> Any:
        """Return a value as JSON, or as text if JSON has no type for it."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int) and abs(value) <= json.MAX_INTEGER:
            return int(value)
        if isinstance(value, float) and math.isfinite(value):
            return value
        if isinstance(value, Mapping) and depth < MAX_DEPTH:
            return {
                name: REDACTED if self._is_sensitive(name) else self._value(item, depth + 1)
                for name, item in ((_string(name), item) for name, item in value.items())
            }
        if isinstance(value, list | tuple) and depth < MAX_DEPTH:
            return [self._value(item, depth + 1) for item in value]
        return _string(value)


def _given(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields of job and span that the worker or the filter has set on a record."""
    # A record without an id is not about a job: other libraries use `queue` and `state` too.
    names = (*(JOB_FIELDS if hasattr(record, "job_id") else ()), *_TRACE_FIELDS)
    return {name: getattr(record, name) for name in names if hasattr(record, name)}


def _current_fields() -> dict[str, Any]:
    """Return the fields of the job that runs here, and of the current span."""
    contexts = sys.modules.get("django_ojs.context")
    context = None if contexts is None else contexts.current_context()
    if contexts is None or context is None:
        return _current_span()
    return {**contexts.log_fields(context), **_current_span()}


def _current_span() -> dict[str, str]:
    # A project without OpenTelemetry has not imported it, and has no span.
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return {}
    found = trace.get_current_span().get_span_context()
    if not found.is_valid:
        return {}
    return {"trace_id": f"{found.trace_id:032x}", "span_id": f"{found.span_id:016x}"}


def _severity(level: int) -> tuple[str, int]:
    return next(((name, n) for lowest, name, n in _SEVERITIES if level >= lowest), ("TRACE", 1))


def _category(record: logging.LogRecord) -> str | None:
    if not record.name.startswith("django_ojs"):
        return None
    # The end of a run (see `worker.job_log`), or a change of state.
    if hasattr(record, "status") or record.name == TRANSITIONS:
        return "lifecycle"
    return "worker" if is_worker() else None


def _timestamp(seconds: float) -> str:
    when = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return when.replace("+00:00", "Z")


def _text(text: str) -> str:
    return clean(text, MAX_CHARACTERS)


def _string(value: object) -> str:
    """Return a value as text, or the name of its class if its `__str__` fails."""
    try:
        return _text(str(value))
    except Exception:
        return f"({type(value).__qualname__})"


def _backtrace(given: tuple[Any, Any, Any]) -> str:
    lines = traceback.format_tb(given[2])
    if settings().log_error_messages:
        # The given exception may have attributes that cannot be read.
        with suppress(Exception):
            lines = traceback.format_exception(*given)
    return _text("".join(lines))

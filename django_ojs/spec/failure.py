"""What a failed attempt reports (ojs-core §8), and what a handler may raise (ojs-retry §7)."""

import re
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from itertools import islice
from traceback import walk_tb
from types import TracebackType
from typing import Any, ClassVar, Final, Self, TypeVar

from django_ojs.spec.errors import InvalidRequest, OJSError
from django_ojs.spec.times import format_timestamp, parse_duration, parse_seconds, parse_timestamp

V = TypeVar("V")

#: core §8.1 recommends the limits of frames and of a backtrace.
MAX_FRAMES: Final = 50
MAX_BACKTRACE_CHARACTERS: Final = 10_000
MAX_MESSAGE_CHARACTERS: Final = 10_000
MAX_TYPE_CHARACTERS: Final = 255
# Details are read by people: values beyond these limits are cut.
MAX_DETAIL_VALUES: Final = 1_000
MAX_DETAIL_DEPTH: Final = 16
MAX_DETAIL_CHARACTERS: Final = 1_000

#: It stands for a number or a quotation in the form of a message (see `message_form`), and at the
#: end for whatever follows.
PLACE: Final = "…"
#: The most characters of a message that its form is made from.
MAX_FORM_CHARACTERS: Final = 200
#: A quotation, or a word with a digit in it: a number, an id, an address.
_VARIES: Final = re.compile(
    r"\"[^\"]*\"|\u201c[^\u201d]*\u201d|(?<!\w)'[^']*'(?!\w)|\u2018[^\u2019]*\u2019"
    r"|[\w@:/+-]*\d[\w@:/+-]*(?:[.,][\w@:/+-]+)*"
)

#: The packages between the start of a thread and the project's code.
_CALLERS: Final = frozenset(
    {"django_ojs", "asyncio", "asgiref", "concurrent", "contextlib", "threading"}
)

#: The type of the error of a job that its worker has no handler for.
UNKNOWN_JOB_TYPE: Final = "unknown_job_type"

#: How long RateLimitExceeded pauses the key of a job by default, and at most. A mistake must not
#: stop a key for years.
DEFAULT_PAUSE: Final = timedelta(minutes=1)
MAX_PAUSE: Final = timedelta(days=1)

RESPONSE_CODES: Final = frozenset({"RETRY", "DISCARD", "DEAD_LETTER", "FAIL"})


def message_form(message: str | None) -> str:
    """Return what messages of one cause have in common, in one printable line.

    `Order 17 of "ann" failed.` and `Order 18 of "bob" failed.` have the form `Order … of … failed.`
    """
    text = message or ""
    whole = text[: MAX_FORM_CHARACTERS - 1]
    end = next((n for n, each in enumerate(whole) if not each.isprintable()), len(whole))
    shown = _VARIES.sub(PLACE, whole[:end])
    if not shown.strip(f"{PLACE} .,:;"):
        shown = whole[:end]  # Nothing else says what the error is about.
    return shown if end == len(text) or shown.endswith(PLACE) else f"{shown}{PLACE}"


def is_form(message: str | None) -> bool:
    """Return whether a message can be shown in place of its form: it is short and printable."""
    return bool(message) and len(message or "") < MAX_FORM_CHARACTERS and str(message).isprintable()


class HandlerResponse(Exception):
    """Base of the exceptions by which a handler decides what happens to its job."""

    code: ClassVar[str]

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message


class Retry(HandlerResponse):
    """Request another attempt, after `delay` or the delay of the policy.

    The delay is a timedelta, a number of seconds, "PT5M" or "5m".
    """

    code = "RETRY"

    def __init__(self, message: str = "", delay: timedelta | str | float | None = None) -> None:
        super().__init__(message)
        self.delay = None if delay is None else parse_seconds(delay, "delay")

    def __reduce__(self) -> tuple[Any, ...]:
        return self.__class__, (self.message, self.delay)


class RateLimitExceeded(HandlerResponse):
    """Pause the limit key of the job, because the service that it calls rejects more calls.

    No job of the key starts before the pause ends, at most a day later, and this run spends no
    attempt. `retry_after` is a timedelta, a number of seconds, "PT5M" or "5m", a datetime, or the
    value of a Retry-After header. A text that cannot be read, or None, means a minute. A job
    without a limit key waits alone.
    """

    code = "RETRY"

    def __init__(
        self, message: str = "", *, retry_after: timedelta | datetime | str | float | None = None
    ) -> None:
        super().__init__(message)
        self.until = _until(retry_after)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rate_limit_exceeded, (self.__class__, self.message, self.until)


def _rate_limit_exceeded(
    cls: type[RateLimitExceeded], message: str, until: datetime
) -> RateLimitExceeded:
    return cls(message, retry_after=until)


class Discard(HandlerResponse):
    """End the job: no further attempt, no dead letter."""

    code = "DISCARD"


class DeadLetter(HandlerResponse):
    """End the job as a dead letter, whatever its retry policy says."""

    code = "DEAD_LETTER"


class ResultRejected(Exception):
    """The handler has ended, and its result cannot be stored: it is not JSON, or too large.

    The effects of the handler remain. Running it again would repeat them, and end in the same way.
    """

    ojs_type: ClassVar[str] = "result_rejected"
    ojs_retryable: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Why an attempt failed. Texts hold no NUL and no lone surrogate, and are bounded."""

    type: str
    message: str
    backtrace: tuple[str, ...] = ()
    code: str | None = None
    retryable: bool | None = None
    details: dict[str, Any] | None = None
    #: Where the class of the exception can be imported. Never read from a request, because a
    #: reader of the failure may import it.
    exception_class: str | None = None
    delay: timedelta | None = None
    #: No job of the same limit key may start before this time (ojs-rate-limiting §9.1).
    rate_limit_until: datetime | None = None

    @property
    def pause(self) -> timedelta:
        """For how long the limit key of the job is paused; zero if it is not."""
        if self.rate_limit_until is None:
            return timedelta(0)
        return min(max(timedelta(0), self.rate_limit_until - datetime.now(UTC)), MAX_PAUSE)

    @property
    def characters(self) -> int:
        """The approximate length of its texts."""
        details = 0 if self.details is None else len(str(self.details))
        return len(self.message) + sum(map(len, self.backtrace)) + details

    @classmethod
    def parse(cls, data: object) -> Self:
        """Read the `error` of a FAIL, in core's dialect (`type`) or the HTTP binding's (`code`).

        Raises InvalidRequest when `type` and `code` are missing, or a field has a wrong type. A
        missing message is the type; long or unclean text is cut and cleaned, never rejected.
        """
        if not isinstance(data, Mapping):
            raise InvalidRequest.of("error", "must be an object")
        kind = _optional_text(data, "type")
        code = _optional_text(data, "code")
        message = _optional_text(data, "message")
        if not kind and not code:
            raise InvalidRequest.of("error.type", "must be a non-empty string")
        if message is None:
            message = kind or code or ""
        if not kind:
            # The HTTP binding's `code` is core's `type`, unless it is one of RESPONSE_CODES.
            kind, code = ("handler_error", code) if code in RESPONSE_CODES else (code, None)
        retryable = data.get("retryable")
        if retryable is not None and not isinstance(retryable, bool):
            raise InvalidRequest.of("error.retryable", "must be a boolean")
        details = data.get("details")
        if details is not None and not isinstance(details, Mapping):
            raise InvalidRequest.of("error.details", "must be an object")
        until = data.get("rate_limit_until")
        return cls(
            type=clean(kind or "", MAX_TYPE_CHARACTERS),
            message=clean(message, MAX_MESSAGE_CHARACTERS),
            backtrace=_frames_of(data.get("backtrace")),
            code=None if code is None else clean(code, MAX_TYPE_CHARACTERS),
            retryable=retryable,
            details=None if details is None else _details(details),
            rate_limit_until=(
                None if until is None else parse_timestamp(until, "error.rate_limit_until")
            ),
        )

    @classmethod
    def from_exception(
        cls, exception: BaseException, *, backtrace: bool = True, keep_class: bool = False
    ) -> Self:
        """Describe an exception: `ojs_type` or class name, message, the project's innermost frames.

        Its `ojs_retryable`, if it has one, says whether another attempt makes sense. With
        `keep_class` the failure also has the path of its class.

        Every exception is described, even if its class is faulty: an error here would leave the
        run without an outcome. What cannot be read, or has another type, counts as absent.
        """
        kind = _attribute(exception, "ojs_type", str)
        details = (
            _attribute(exception, "details", dict) if isinstance(exception, OJSError) else None
        )
        return cls(
            type=clean(kind or type(exception).__qualname__, MAX_TYPE_CHARACTERS),
            message=clean(_message(exception), MAX_MESSAGE_CHARACTERS),
            backtrace=_frames(from_project(exception.__traceback__)) if backtrace else (),
            code=_code_of(exception) if isinstance(exception, HandlerResponse) else None,
            retryable=_attribute(exception, "ojs_retryable", bool),
            details=_readable(details) if details else None,
            exception_class=_path_of(type(exception)) if keep_class else None,
            delay=_delay_of(exception) if isinstance(exception, Retry) else None,
            rate_limit_until=(
                _limited_until(exception) if isinstance(exception, RateLimitExceeded) else None
            ),
        )

    def render(self) -> dict[str, Any]:
        """Return the error object of ojs-core §8.1, without absent members."""
        out: dict[str, Any] = {"type": self.type, "message": self.message}
        if self.backtrace:
            out["backtrace"] = list(self.backtrace)
        if self.code is not None:
            out["code"] = self.code
        if self.retryable is not None:
            out["retryable"] = self.retryable
        if self.details is not None:
            out["details"] = self.details
        if self.exception_class is not None:
            out["exception_class"] = self.exception_class
        if self.rate_limit_until is not None:
            out["rate_limit_until"] = format_timestamp(self.rate_limit_until)
        return out


def with_code(error: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored error as responses show it.

    ojs-core §8.1 calls its kind `type`, the HTTP binding and ojs-errors §6.1 `code`. A failure has
    a `code` of its own only where the handler decided about the job.
    """
    return {"code": error.get("type"), **error}


def clean(text: str, limit: int) -> str:
    """Return text that every database can store, of at most `limit` characters.

    NUL and lone surrogates are replaced.
    """
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    text = str(text).replace("\0", "\N{REPLACEMENT CHARACTER}")
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def from_project(start: TracebackType | None) -> TracebackType | None:
    """Return a traceback from the first frame of the project's code, or all of it without one."""
    first = start
    while first is not None:
        name = first.tb_frame.f_globals.get("__name__")
        if str(name).partition(".")[0] not in _CALLERS:
            return first
        first = first.tb_next
    return start


def _until(value: timedelta | datetime | str | float | None) -> datetime:
    now = datetime.now(UTC)
    if isinstance(value, str):
        value = _retry_after(value.strip())
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            rule = "is a naive datetime: use django.utils.timezone.now() or make_aware()"
            raise InvalidRequest.of("retry_after", rule)
        # The value is bounded first, because the first and the last hours of the calendar have no
        # time in UTC.
        return min(max(value, now - MAX_PAUSE), now + MAX_PAUSE).astimezone(UTC)
    wait = DEFAULT_PAUSE if value is None else parse_seconds(value, "retry_after")
    return now + min(wait, MAX_PAUSE)


def _retry_after(text: str) -> datetime | timedelta | None:
    # A service may send anything. An error here would hide that it rejects calls.
    if text.isdecimal() and text.isascii():
        return timedelta(seconds=int(text[:9]))
    with suppress(InvalidRequest):
        return parse_duration(text, "retry_after")
    with suppress(ValueError, OverflowError):
        moment = parsedate_to_datetime(text)
        return None if moment.tzinfo is None else moment
    return None


def _optional_text(data: Mapping[str, Any], name: str) -> str | None:
    value = data.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidRequest.of(f"error.{name}", "must be a string")
    return value


def _attribute(exception: BaseException, name: str, kind: type[V]) -> V | None:
    """Return an attribute of an exception, or None if it is absent, ill-typed or cannot be read."""
    try:
        value = getattr(exception, name, None)
        if isinstance(value, str):
            value = str.__str__(value)  # A subclass of str may raise when it is read.
        return value if isinstance(value, kind) else None
    except BaseException:  # such as a __getattr__ that raises KeyError
        return None


def _code_of(exception: HandlerResponse) -> str | None:
    # A subclass may use the name `code` for something of its own.
    codes = [vars(cls).get("code") for cls in type(exception).__mro__]
    return next((code for code in codes if isinstance(code, str) and code in RESPONSE_CODES), None)


def _delay_of(exception: Retry) -> timedelta | None:
    # A subclass may not call __init__, or may set `delay` to a value that __init__ would convert.
    value = _attribute(exception, "delay", object)
    try:
        return None if value is None else parse_seconds(value, "delay")
    except BaseException:
        return None


def _limited_until(exception: RateLimitExceeded) -> datetime:
    try:
        return _until(_attribute(exception, "until", datetime))
    except BaseException:
        return _until(None)


def _path_of(cls: type[BaseException]) -> str:
    return clean(f"{cls.__module__}.{cls.__qualname__}", MAX_TYPE_CHARACTERS)


def _message(exception: BaseException) -> str:
    try:
        return str.__str__(str(exception))
    except BaseException:  # A __str__ that raises must not hide the failure.
        return "(the message could not be read)"


def _frames(start: TracebackType | None) -> tuple[str, ...]:
    # A RecursionError has a thousand frames: the last ones are kept, without reading any source
    # file.
    last = deque(
        ((frame.f_code, line) for frame, line in walk_tb(start)),
        maxlen=MAX_FRAMES,
    )
    return _fit([f"{code.co_filename}:{line} in {code.co_qualname}" for code, line in last])


def _frames_of(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        value = value.splitlines()
    if not isinstance(value, list | tuple):
        return ()
    # Other languages put the innermost frame first, as core's example does.
    frames = [frame for frame in islice(value, MAX_FRAMES) if isinstance(frame, str)]
    return tuple(reversed(_fit(frames[::-1])))


def _fit(frames: list[str]) -> tuple[str, ...]:
    """Keep the last frames that fit into MAX_BACKTRACE_CHARACTERS together."""
    kept: deque[str] = deque()
    room = MAX_BACKTRACE_CHARACTERS
    for frame in reversed(frames):
        if room <= 0:
            break
        kept.appendleft(clean(frame, room))
        room -= len(kept[0])
    return tuple(kept)


def _details(value: Mapping[Any, Any]) -> dict[str, Any]:
    budget = [MAX_DETAIL_VALUES]
    return {
        clean(str(key), MAX_TYPE_CHARACTERS): _detail(item, 1, budget)
        for key, item in islice(value.items(), MAX_DETAIL_VALUES)
    }


def _readable(details: Mapping[Any, Any]) -> dict[str, Any] | None:
    """Return the details of an exception, or None if one of them cannot be read."""
    try:
        return _details(details)
    except BaseException:
        return None


def _detail(value: object, depth: int, budget: list[int]) -> Any:
    budget[0] -= 1
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return clean(value, MAX_DETAIL_CHARACTERS)
    if isinstance(value, int):
        return value if abs(value) < 2**53 else "(a large integer)"
    if isinstance(value, float):
        return value if value - value == 0 else "(not a finite number)"
    if isinstance(value, Mapping | list | tuple):
        if depth >= MAX_DETAIL_DEPTH or budget[0] <= 0:
            return "(cut)"
        if isinstance(value, Mapping):
            return {
                clean(str(key), MAX_TYPE_CHARACTERS): _detail(item, depth + 1, budget)
                for key, item in islice(value.items(), budget[0])
            }
        return [_detail(item, depth + 1, budget) for item in islice(value, budget[0])]
    return f"({value.__class__.__qualname__})"

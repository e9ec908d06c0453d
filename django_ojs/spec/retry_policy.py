"""The retry policy of a job (ojs-retry): its fields, the delay, the decision after a failure."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any, Final, Literal

from django_ojs.spec.errors import InvalidRequest, InvalidRetryPolicy
from django_ojs.spec.suggestions import did_you_mean, is_misspelt
from django_ojs.spec.times import format_duration, parse_milliseconds, parse_seconds

Exhaustion = Literal["dead_letter", "discard"]
Strategy = Literal["exponential", "linear", "constant", "polynomial"]
Duration = timedelta | str | float

#: The largest number that the integer column can store on every database.
MAX_ATTEMPTS_LIMIT: Final = 2**31 - 1

#: The reasons for which a failed run discards its job. With any other reason, no run was the cause.
FAILED_RUN: Final = frozenset({"exhausted", "non_retryable", "discard", "fail", "dead_letter"})

_STRATEGIES: Final = ("exponential", "linear", "constant", "polynomial")


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """The consequence of a failure: another attempt after `delay`, or the job is discarded."""

    action: Literal["retry", "discard"]
    delay: timedelta = timedelta(0)
    dead_letter: bool = False
    reason: Literal["retry", "exhausted", "non_retryable", "discard", "fail", "dead_letter"]


@dataclass(frozen=True, kw_only=True, slots=True, init=False)
class RetryPolicy:
    """How often and how soon a failed job is retried (ojs-retry §2).

    `max_attempts` counts the first execution; 0 and 1 both mean "no retry". Intervals are
    timedeltas, ISO 8601 or short strings, or seconds. `extra` holds unknown fields.
    Raises InvalidRetryPolicy.
    """

    max_attempts: int
    initial_interval: timedelta
    backoff_coefficient: float
    max_interval: timedelta
    jitter: bool
    non_retryable_errors: tuple[str, ...]
    on_exhaustion: Exhaustion
    backoff_strategy: Strategy
    extra: Mapping[str, Any] = field(hash=False, repr=False)

    def __init__(
        self,
        *,
        max_attempts: int = 3,
        initial_interval: Duration = timedelta(seconds=1),
        backoff_coefficient: float = 2.0,
        max_interval: Duration = timedelta(minutes=5),
        jitter: bool = True,
        non_retryable_errors: Sequence[str] = (),
        on_exhaustion: Exhaustion = "dead_letter",
        backoff_strategy: Strategy | Literal["none"] = "exponential",
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        put = object.__setattr__
        put(self, "max_attempts", _attempts(max_attempts))
        put(self, "initial_interval", _interval(initial_interval, "initial_interval"))
        put(self, "backoff_coefficient", _coefficient(backoff_coefficient))
        put(self, "max_interval", _interval(max_interval, "max_interval"))
        put(self, "jitter", _boolean(jitter))
        put(self, "non_retryable_errors", _errors(non_retryable_errors))
        exhaustion = _one_of(on_exhaustion, "on_exhaustion", "dead_letter", "discard")
        put(self, "on_exhaustion", exhaustion)
        strategy = "constant" if backoff_strategy == "none" else backoff_strategy
        put(self, "backoff_strategy", _one_of(strategy, "backoff_strategy", *_STRATEGIES))
        if extra is not None and not isinstance(extra, Mapping):
            raise InvalidRetryPolicy.of("retry.extra", "must be a mapping")
        put(self, "extra", dict(extra) if extra else {})
        if self.initial_interval <= timedelta(0):
            raise InvalidRetryPolicy.of("retry.initial_interval", "must be greater than zero")
        if self.max_interval < self.initial_interval:
            raise InvalidRetryPolicy.of(
                "retry.max_interval",
                "must not be less than retry.initial_interval",
                hint="Where only one of the two is given, the other one has its default.",
            )

    def delay(self, attempt: int, random: Callable[[], float]) -> timedelta:
        """Return the delay after `attempt` (1-based) failed; `random` returns numbers in [0, 1).

        It is capped before and after the jitter (ojs-retry §3.5, §5.3).
        """
        cap = self.max_interval.total_seconds()
        seconds = min(self._raw(max(attempt, 1)), cap)
        if self.jitter:
            seconds = min(seconds * (0.5 + random()), cap)
        return min(timedelta(seconds=max(seconds, 0.0)), self.max_interval)

    def _raw(self, retry: int) -> float:
        first = self.initial_interval.total_seconds()
        try:
            if self.backoff_strategy == "exponential":
                return first * math.pow(self.backoff_coefficient, retry - 1)
            if self.backoff_strategy == "linear":
                return first * retry
            if self.backoff_strategy == "polynomial":
                return first * math.pow(retry, self.backoff_coefficient)
            return first
        except OverflowError:  # 2.0 ** 100_000: far over any cap
            return math.inf

    def matches(self, error_type: str) -> bool:
        """Say whether `non_retryable_errors` names this error type, exactly or by `prefix.*`."""
        return any(
            error_type == entry or (entry.endswith(".*") and error_type.startswith(entry[:-1]))
            for entry in self.non_retryable_errors
        )

    def decide(
        self,
        *,
        attempt: int,
        error_type: str,
        code: str | None = None,
        retryable: bool | None = None,
        random: Callable[[], float],
        delay: timedelta | None = None,
    ) -> Decision:
        """Decide after a failure (ojs-retry §7.2); `attempt` attempts are spent.

        The handler's code comes first, then `retryable`, then the policy. `delay` is what the
        handler asked for: it replaces the computed delay.
        """
        if code == "DISCARD":
            return Decision(action="discard", reason="discard")
        if code == "FAIL":
            return Decision(action="discard", reason="fail")
        if code == "DEAD_LETTER":
            return Decision(action="discard", dead_letter=True, reason="dead_letter")
        dead_letter = self.on_exhaustion == "dead_letter"
        if self.matches(error_type) or (retryable is False and code != "RETRY"):
            return Decision(action="discard", dead_letter=dead_letter, reason="non_retryable")
        if attempt >= self.max_attempts:
            return Decision(action="discard", dead_letter=dead_letter, reason="exhausted")
        wait = self.delay(attempt, random) if delay is None else max(delay, timedelta(0))
        return Decision(action="retry", delay=wait, reason="retry")

    def render(self) -> dict[str, Any]:
        """Return the complete policy as JSON, unknown fields included; durations in ISO 8601."""
        out: dict[str, Any] = {
            **self.extra,
            "max_attempts": self.max_attempts,
            "initial_interval": format_duration(self.initial_interval),
            "backoff_coefficient": self.backoff_coefficient,
            "max_interval": format_duration(self.max_interval),
            "jitter": self.jitter,
            "non_retryable_errors": list(self.non_retryable_errors),
            "on_exhaustion": self.on_exhaustion,
        }
        # The schema of ojs-retry §14 lacks this field: the default is left out.
        if self.backoff_strategy != "exponential":
            out["backoff_strategy"] = self.backoff_strategy
        return out


_FIELDS: Final = tuple(each.name for each in fields(RetryPolicy) if each.name != "extra")
_INTERVALS: Final = ("initial_interval", "max_interval")
_NAMES: Final = frozenset({*_FIELDS, *(f"{name}_ms" for name in _INTERVALS)})


def parse_python(data: object, *, default: RetryPolicy) -> RetryPolicy:
    """Return the policy that Python code or a setting describes; see `parse`.

    An interval may be a number of seconds. An unknown field is rejected: JSON of clients may carry
    fields of later versions, but in code an unknown field is a misspelt one.
    """
    if not isinstance(data, Mapping):
        return parse(data, default=default)
    check_names(data)
    given = dict(data)
    for name in _INTERVALS:
        if isinstance(given.get(name), int | float):
            given[name] = _interval(given[name], name)
    return parse(given, default=default)


def check_names(data: Mapping[str, Any], path: str = "retry") -> None:
    """Reject unknown fields, unless they begin with `x_`. Raises InvalidRetryPolicy."""
    for name in data:
        if isinstance(name, str) and name not in _NAMES and not name.startswith("x_"):
            raise InvalidRetryPolicy.of(
                f"{path}.{name}",
                f"is not a field of a retry policy. {did_you_mean(name, _FIELDS)}",
                hint="The names of your own fields begin with x_.",
            )


def check_spelling(data: Mapping[str, Any], path: str) -> None:
    """Reject the misspelt name of a field. Raises InvalidRetryPolicy."""
    for name in data:
        if name not in _NAMES and is_misspelt(name, _FIELDS):
            check_names({name: None}, path)


def parse(data: object, *, default: RetryPolicy) -> RetryPolicy:
    """Return the policy of a job: the fields of `data`, completed from `default` (ojs-retry §8.1).

    `data` is an object in any dialect, a RetryPolicy, an integer (max_attempts) or None. Unknown
    fields are kept (json-format §14.3). Raises InvalidRetryPolicy.
    """
    if data is None:
        return default
    if isinstance(data, RetryPolicy):
        return data
    if isinstance(data, int) and not isinstance(data, bool):
        data = {"max_attempts": data}
    if not isinstance(data, Mapping):
        raise InvalidRetryPolicy.of("retry", "must be an object")
    given = {key: value for key, value in data.items() if value is not None}
    values: dict[str, Any] = {name: getattr(default, name) for name in _FIELDS}
    for name in _INTERVALS:
        milliseconds = given.pop(f"{name}_ms", None)
        if milliseconds is not None and name not in given:
            given[name] = _interval(milliseconds, f"{name}_ms", parse_milliseconds)
        elif isinstance(given.get(name), int | float):
            # In Python a number is in seconds, but on the wire it could be in seconds or in
            # milliseconds.
            raise InvalidRetryPolicy.of(
                f"retry.{name}", "must be an ISO 8601 duration such as PT30S"
            )
    values.update((name, given.pop(name)) for name in _FIELDS if name in given)
    return RetryPolicy(**values, extra={**default.extra, **given})


def _attempts(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidRetryPolicy.of("retry.max_attempts", "must be a non-negative integer")
    if value > MAX_ATTEMPTS_LIMIT:
        raise InvalidRetryPolicy.of("retry.max_attempts", f"must be at most {MAX_ATTEMPTS_LIMIT}")
    return value


def _interval(
    value: object, name: str, parse: Callable[[object, str], timedelta] = parse_seconds
) -> timedelta:
    try:
        return parse(value, f"retry.{name}")
    except InvalidRequest as error:
        raise InvalidRetryPolicy(error.message, details=error.details) from None


def _coefficient(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if 1.0 <= number < math.inf:
            return number
    raise InvalidRetryPolicy.of("retry.backoff_coefficient", "must be a number, 1.0 or more")


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidRetryPolicy.of("retry.jitter", "must be a boolean")
    return value


def _errors(value: object) -> tuple[str, ...]:
    if isinstance(value, list | tuple) and all(isinstance(entry, str) and entry for entry in value):
        return tuple(value)
    raise InvalidRetryPolicy.of(
        "retry.non_retryable_errors", "must be an array of non-empty strings"
    )


def _one_of(value: object, name: str, *allowed: str) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise InvalidRetryPolicy.of(f"retry.{name}", f"must be one of {', '.join(allowed)}")
    return value


#: The policy of a job without one (ojs-retry §8; `on_exhaustion` as in the core document).
DEFAULT: Final = RetryPolicy()


def of_options(options: Mapping[str, Any] | None) -> RetryPolicy:
    """Return the policy of a stored job, by its column `options`."""
    return parse((options or {}).get("retry"), default=DEFAULT)

"""What failures say, whoever reports them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_ojs.spec import failure, json
from django_ojs.spec.errors import Conflict, InvalidRequest
from django_ojs.spec.failure import DeadLetter, Discard, Failure, RateLimitExceeded, Retry
from tests.cases import together


def test_both_dialects_name_the_type() -> None:
    assert Failure.parse({"type": "Boom", "message": "m"}).type == "Boom"
    binding = Failure.parse({"code": "handler_error", "message": "m", "retryable": True})
    assert (binding.type, binding.code, binding.retryable) == ("handler_error", None, True)


def test_a_response_code_is_not_taken_for_a_type() -> None:
    parsed = Failure.parse({"code": "DISCARD", "message": "m"})
    assert (parsed.type, parsed.code) == ("handler_error", "DISCARD")


@together(
    ("data", "field"),
    [
        (None, "error must"),
        ("boom", "error must"),
        ([], "error must"),
        ({}, "error.type"),
        ({"message": "m"}, "error.type"),
        ({"type": "", "message": "m"}, "error.type"),
        ({"type": 5, "message": "m"}, "error.type"),
        ({"type": "T", "code": 5, "message": "m"}, "error.code"),
        ({"type": "T", "message": 5}, "error.message"),
        ({"type": "T", "message": "m", "retryable": "no"}, "error.retryable"),
        ({"type": "T", "message": "m", "details": []}, "error.details"),
    ],
)
def test_what_is_missing_or_ill_typed_is_named(data: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as rejected:
        Failure.parse(data)
    assert rejected.value.message.startswith(field)


def test_long_and_dirty_text_is_cut_and_cleaned() -> None:
    parsed = Failure.parse({"type": "T" * 999, "message": "a\0b\ud800" + "x" * 20_000})
    assert len(parsed.type) == failure.MAX_TYPE_CHARACTERS
    assert len(parsed.message) == failure.MAX_MESSAGE_CHARACTERS
    assert parsed.message.startswith("a\ufffdb\ufffdxx")


@given(st.text(alphabet=st.characters(), max_size=50), st.integers(1, 60))
def test_clean_text_can_always_be_stored(text: str, limit: int) -> None:
    cleaned = failure.clean(text, limit)
    assert len(cleaned) <= limit
    assert "\0" not in cleaned
    assert cleaned.encode().decode() == cleaned


def test_a_backtrace_is_bounded_and_keeps_the_innermost_frames() -> None:
    frames = [f"frame {number}" for number in range(200)]
    parsed = Failure.parse({"type": "T", "message": "m", "backtrace": frames})
    assert parsed.backtrace == tuple(frames[: failure.MAX_FRAMES])
    wide = Failure.parse({"type": "T", "message": "m", "backtrace": ["x" * 9_999] * 9})
    assert sum(map(len, wide.backtrace)) <= failure.MAX_BACKTRACE_CHARACTERS
    assert Failure.parse({"type": "T", "message": "m", "backtrace": 5}).backtrace == ()
    assert Failure.parse({"type": "T", "message": "m", "backtrace": "a\nb"}).backtrace == ("a", "b")


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=20,
)


@settings(max_examples=30)
@given(st.dictionaries(st.text(), json_like))
def test_details_of_any_kind_become_storable(details: dict[str, Any]) -> None:
    rendered = Failure.parse({"type": "T", "message": "m", "details": details}).render()
    json.check(rendered, "error")
    json.dumps(rendered)


def test_details_that_never_end_are_cut() -> None:
    endless: dict[str, Any] = {}
    endless["again"] = [endless, endless]
    rendered = Failure.parse({"type": "T", "message": "m", "details": endless}).render()
    assert len(json.dumps(rendered)) < 100_000


def raised(exception: BaseException) -> BaseException:
    try:
        raise exception
    except BaseException as caught:
        return caught


def test_an_exception_gives_its_class_its_message_and_where_it_was_raised() -> None:
    made = Failure.from_exception(raised(ValueError("no such order")))
    assert (made.type, made.message, made.code) == ("ValueError", "no such order", None)
    assert len(made.backtrace) == 1
    assert "test_failure.py:" in made.backtrace[0]
    assert made.backtrace[0].endswith("in raised") or "raised" in made.backtrace[0]


def test_the_frames_before_the_project_are_left_out() -> None:
    class Faulty(dict[str, Any]):
        def get(self, *args: Any) -> Any:
            raise ValueError("no")

    with pytest.raises(ValueError, match="no") as caught:
        Failure.parse(Faulty())
    error = caught.value.with_traceback(caught.tb.tb_next)
    (frame,) = Failure.from_exception(error).backtrace
    assert frame.endswith("Faulty.get")


def test_an_exception_that_is_not_raised_by_the_project_keeps_all_frames() -> None:
    with pytest.raises(InvalidRequest) as caught:
        Failure.parse({"type": 5})
    # Without the frame of this test, as where the worker itself calls it.
    error = caught.value.with_traceback(caught.tb.tb_next)
    made = Failure.from_exception(error)
    assert [frame.rpartition(" ")[2] for frame in made.backtrace] == [
        "Failure.parse",
        "_optional_text",
    ]


def test_an_exception_may_name_its_own_type() -> None:
    class CardDeclined(Exception):
        ojs_type = "payment.card_declined"

    assert Failure.from_exception(CardDeclined()).type == "payment.card_declined"


def test_a_recursion_error_keeps_fifty_frames() -> None:
    def down() -> None:
        down()

    with pytest.raises(RecursionError) as caught:
        down()
    made = Failure.from_exception(caught.value)
    assert len(made.backtrace) == failure.MAX_FRAMES
    assert Failure.from_exception(caught.value, backtrace=False).backtrace == ()


def test_an_exception_whose_message_cannot_be_read_is_still_reported() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert Failure.from_exception(Broken()).message == "(the message could not be read)"


class Ending:
    """Ends the process of whoever reads it, as `sys.exit()` in a handler does."""

    def __str__(self) -> str:
        raise SystemExit

    __repr__ = __str__


class EndingText(str):
    def __len__(self) -> int:
        raise SystemExit


class EndingProperties(Exception):
    @property
    def ojs_type(self) -> str:
        raise SystemExit

    @property
    def ojs_retryable(self) -> bool:
        raise KeyboardInterrupt

    def __str__(self) -> str:
        raise SystemExit


def described(make: Callable[[], BaseException]) -> Failure | None:
    # Not in the frame of the test, of which pytest prints the variables.
    try:
        return Failure.from_exception(make())
    except BaseException:
        return None


def conflicts() -> list[Failure | None]:
    """Return the failures of errors whose details cannot be read."""
    details = [{Ending(): 1}, {"a": {Ending(): 1}}, {"a": EndingText("text")}]
    return [described(partial(with_attributes, Conflict("m"), details=each)) for each in details]


def test_an_exception_whose_attributes_end_the_process_is_still_reported() -> None:
    found = described(EndingProperties)
    assert found is not None
    assert (found.type, found.retryable) == ("EndingProperties", None)
    assert found.message == "(the message could not be read)"
    assert [each and each.message for each in conflicts()] == ["m"] * 3
    retry = described(lambda: with_attributes(Retry("m"), delay=Ending()))
    assert retry is not None
    assert retry.delay is None
    limit = described(lambda: with_attributes(RateLimitExceeded("m"), until=Ending()))
    assert limit is not None
    assert limit.rate_limit_until is not None
    text = "payment.declined"
    named = described(lambda: with_attributes(ValueError("m"), ojs_type=EndingText(text)))
    assert named is not None
    assert named.type == "payment.declined"


class Wrapped(Exception):
    """What it wraps has the attributes."""

    def __getattr__(self, name: str) -> Any:
        return {"status": 503}[name]


class Bare(Retry):
    """It calls no `__init__` of its base, and has a code of its own."""

    def __init__(self) -> None:
        self.code = "E42"


class BareLimit(RateLimitExceeded):
    def __init__(self) -> None:
        pass


class BareError(Conflict):
    def __init__(self) -> None:
        pass


def with_attributes(exception: Exception, **values: Any) -> Exception:
    vars(exception).update(values)
    return exception


@together(
    ("exception", "expected"),
    [
        (Wrapped("m"), {"type": "Wrapped", "message": "m", "retryable": None}),
        (Bare(), {"type": "Bare", "code": "RETRY", "delay": None}),
        (with_attributes(Bare(), delay=30), {"delay": timedelta(seconds=30)}),
        (with_attributes(Retry("m"), delay="soon"), {"delay": None}),
        (with_attributes(Discard("m"), code="gone"), {"code": "DISCARD"}),
        (type("Own", (DeadLetter,), {"code": "own"})("m"), {"code": "DEAD_LETTER"}),
        (BareError(), {"type": "BareError", "details": None}),
        (with_attributes(Conflict("m"), details=["x"]), {"details": None}),
        (with_attributes(ValueError("m"), ojs_retryable="no", ojs_type=7), {"retryable": None}),
    ],
    ids=lambda exception: type(exception).__name__,
)
def test_an_exception_whose_class_is_faulty_is_still_reported(
    exception: Exception, expected: dict[str, Any]
) -> None:
    made = Failure.from_exception(exception, keep_class=True)
    assert {name: getattr(made, name) for name in expected} == expected
    assert made.exception_class
    json.dumps(made.render())


@pytest.mark.parametrize("until", [None, "soon", datetime(2030, 1, 1)])  # noqa: DTZ001
def test_a_faulty_rate_limit_pauses_for_a_minute(until: Any) -> None:
    exception = BareLimit() if until is None else with_attributes(BareLimit(), until=until)
    assert 40 <= Failure.from_exception(exception).pause.total_seconds() <= 60


def test_our_own_errors_bring_their_details() -> None:
    made = Failure.from_exception(Conflict("no", details={"job_id": "x"}))
    assert made.details == {"job_id": "x"}


@pytest.mark.parametrize(
    ("response", "code"),
    [(Retry("m"), "RETRY"), (Discard("m"), "DISCARD"), (DeadLetter("m"), "DEAD_LETTER")],
)
def test_the_response_of_a_handler_becomes_its_code(response: Exception, code: str) -> None:
    made = Failure.from_exception(raised(response))
    assert (made.code, made.message) == (code, "m")
    assert str(pickle.loads(pickle.dumps(response))) == "m"


@pytest.mark.parametrize("delay", [timedelta(minutes=5), 300, 300.0, "PT5M", "5m"])
def test_a_retry_takes_its_delay_in_every_form(delay: Any) -> None:
    response = Retry("m", delay=delay)
    assert Failure.from_exception(response).delay == timedelta(minutes=5)
    assert pickle.loads(pickle.dumps(response)).delay == timedelta(minutes=5)


@pytest.mark.parametrize("delay", [-1, float("nan"), 1e300, "soon", True])
def test_a_retry_rejects_a_delay_that_is_none(delay: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"^delay must"):
        Retry("m", delay=delay)


def test_what_is_rendered_is_read_back() -> None:
    whole = Failure(
        type="T", message="m", backtrace=("a",), code="FAIL", retryable=False, details={"n": 1}
    )
    assert Failure.parse(whole.render()) == whole
    assert Failure(type="T", message="m").render() == {"type": "T", "message": "m"}


@together(
    ("retry_after", "seconds"),
    [
        (None, 60),
        (30, 30),
        (1.5, 1.5),
        ("120", 120),
        (" PT2M ", 120),
        (timedelta(minutes=5), 300),
        ("Wed, 01 Jan 2020 00:00:00 GMT", 0),
        ("the server says so", 60),
        ("Wed, 01 Jan 9020 00:00:00 GMT", 86_400),
        (10**9, 86_400),
        ("9" * 30, 86_400),
        (datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))), 86_400),
        (datetime.min.replace(tzinfo=timezone(timedelta(hours=14))), 0),
    ],
)
def test_a_rate_limit_is_exceeded_until_a_bounded_time(retry_after: Any, seconds: float) -> None:
    raised = pickle.loads(pickle.dumps(RateLimitExceeded("429", retry_after=retry_after)))
    failure = Failure.from_exception(raised)
    assert (failure.type, failure.message) == ("RateLimitExceeded", "429")
    assert max(0, seconds - 20) <= failure.pause.total_seconds() <= seconds
    assert failure.render()["rate_limit_until"].endswith("Z")


def test_a_rate_limit_needs_a_time_that_can_be_compared() -> None:
    with pytest.raises(InvalidRequest, match="naive"):
        RateLimitExceeded(retry_after=datetime(2030, 1, 1))  # noqa: DTZ001  # that is the mistake

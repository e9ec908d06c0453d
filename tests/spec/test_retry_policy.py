"""The retry policy: rules, delays, decisions."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ojs.spec import retry_policy
from django_ojs.spec.errors import InvalidRetryPolicy
from django_ojs.spec.retry_policy import DEFAULT, RetryPolicy
from tests.cases import together

intervals = st.timedeltas(min_value=timedelta(microseconds=1), max_value=timedelta(days=300))


@st.composite
def policies(draw: st.DrawFn) -> RetryPolicy:
    low, high = sorted([draw(intervals), draw(intervals)])
    return RetryPolicy(
        max_attempts=draw(st.integers(0, 10**6)),
        initial_interval=low,
        backoff_coefficient=draw(st.floats(1.0, 1e300)),
        max_interval=high,
        jitter=draw(st.booleans()),
        non_retryable_errors=draw(st.lists(st.text(min_size=1), max_size=3)),
        on_exhaustion=draw(st.sampled_from(["dead_letter", "discard"])),
        backoff_strategy=draw(
            st.sampled_from(["exponential", "linear", "constant", "none", "polynomial"])
        ),
    )


def seconds(policy: RetryPolicy, *attempts: int, random: float = 0.5) -> list[float]:
    return [policy.delay(attempt, lambda: random).total_seconds() for attempt in attempts]


def test_the_default_policy_is_the_documented_one() -> None:
    assert DEFAULT.render() == {
        "max_attempts": 3,
        "initial_interval": "PT1S",
        "backoff_coefficient": 2.0,
        "max_interval": "PT5M",
        "jitter": True,
        "non_retryable_errors": [],
        "on_exhaustion": "dead_letter",
    }


@together(
    ("fields", "expected"),
    [
        ({}, [1, 2, 4, 8, 16, 300]),
        ({"backoff_strategy": "linear", "initial_interval": 5}, [5, 10, 15, 20, 25, 300]),
        ({"backoff_strategy": "constant", "initial_interval": 5}, [5] * 6),
        ({"backoff_strategy": "none", "initial_interval": 5}, [5] * 6),
        (
            {"backoff_strategy": "polynomial", "backoff_coefficient": 4},
            [1, 16, 81, 256, 300, 300],
        ),
        ({"backoff_coefficient": 1}, [1] * 6),
    ],
)
def test_delays_follow_the_formula_up_to_the_cap(
    fields: dict[str, Any], expected: list[float]
) -> None:
    assert seconds(RetryPolicy(jitter=False, **fields), 1, 2, 3, 4, 5, 1_000_000) == expected


def test_jitter_spreads_by_half_and_never_passes_the_cap() -> None:
    policy = RetryPolicy(initial_interval=10, max_interval=300)
    assert seconds(policy, 1, random=0.0) == [5]
    assert seconds(policy, 1, random=0.5) == [10]
    assert 14.9 < seconds(policy, 1, random=0.999999)[0] < 15
    assert seconds(policy, 6, random=0.999999) == [300]
    assert seconds(policy, 6, random=0.0) == [150]


@given(policies(), st.integers(-1, 10**7), st.floats(0, 1, exclude_max=True))
def test_no_attempt_overflows_and_every_delay_is_within_the_cap(
    policy: RetryPolicy, attempt: int, random: float
) -> None:
    assert timedelta(0) <= policy.delay(attempt, lambda: random) <= policy.max_interval


@given(policies(), st.integers(1, 10**6), st.integers(0, 1_000))
def test_delays_without_jitter_never_shrink(
    policy: RetryPolicy, attempt: int, further: int
) -> None:
    policy = retry_policy.parse({"jitter": False}, default=policy)
    first, later = seconds(policy, attempt, attempt + further)
    assert first <= later


@given(policies())
def test_a_policy_survives_rendering_and_pickling(policy: RetryPolicy) -> None:
    assert retry_policy.parse(policy.render(), default=DEFAULT) == policy
    assert pickle.loads(pickle.dumps(policy)) == policy
    assert hash(retry_policy.parse(policy.render(), default=DEFAULT)) == hash(policy)


@together(
    ("field", "value", "rule"),
    [
        ("max_attempts", -1, "non-negative integer"),
        ("max_attempts", 1.5, "non-negative integer"),
        ("max_attempts", True, "non-negative integer"),
        ("max_attempts", "3", "non-negative integer"),
        ("max_attempts", 2**31, "at most"),
        ("initial_interval", "1 second", "ISO 8601"),
        ("initial_interval", "PT0S", "greater than zero"),
        ("initial_interval", 5, "ISO 8601"),
        ("initial_interval", [], "ISO 8601"),
        ("initial_interval", "PT10M", "not be less than retry.initial_interval"),
        ("initial_interval_ms", -1, "number"),
        ("initial_interval_ms", 1e300, "number"),
        ("initial_interval_ms", "5", "number"),
        ("max_interval", "PT0.5S", "not be less"),
        ("max_interval", "soon", "ISO 8601"),
        ("max_interval", True, "ISO 8601"),
        ("max_interval_ms", True, "number"),
        ("backoff_coefficient", 0.99, "1.0 or more"),
        ("backoff_coefficient", float("nan"), "1.0 or more"),
        ("backoff_coefficient", float("inf"), "1.0 or more"),
        ("backoff_coefficient", 10**400, "1.0 or more"),
        ("backoff_coefficient", True, "1.0 or more"),
        ("backoff_coefficient", "2", "1.0 or more"),
        ("jitter", 1, "boolean"),
        ("jitter", "true", "boolean"),
        ("non_retryable_errors", "auth.*", "array of non-empty strings"),
        ("non_retryable_errors", [1], "array of non-empty strings"),
        ("non_retryable_errors", [""], "array of non-empty strings"),
        ("on_exhaustion", "drop", "one of dead_letter, discard"),
        ("on_exhaustion", [], "one of dead_letter, discard"),
        ("backoff_strategy", "random", "one of exponential"),
    ],
)
def test_a_broken_rule_is_named_with_its_field(field: str, value: Any, rule: str) -> None:
    with pytest.raises(InvalidRetryPolicy) as rejected:
        retry_policy.parse({field: value}, default=DEFAULT)
    assert rejected.value.message.startswith("retry.")
    assert rule in rejected.value.message
    assert rejected.value.status == 422


@pytest.mark.parametrize("data", [True, "PT1S", [], 1.5])
def test_what_is_no_policy_is_rejected(data: Any) -> None:
    with pytest.raises(InvalidRetryPolicy, match="retry must be an object"):
        retry_policy.parse(data, default=DEFAULT)


def test_a_partial_policy_is_completed_from_the_default() -> None:
    site = RetryPolicy(max_attempts=7, jitter=False)
    policy = retry_policy.parse({"max_attempts": 9, "jitter": None}, default=site)
    assert (policy.max_attempts, policy.jitter) == (9, False)
    assert retry_policy.parse(None, default=site) is site
    assert retry_policy.parse(5, default=site) == RetryPolicy(max_attempts=5, jitter=False)


def test_the_dialects_of_intervals_mean_the_same() -> None:
    expected = RetryPolicy(initial_interval=timedelta(seconds=2), max_interval=60)
    for data in (
        {"initial_interval": "PT2S", "max_interval": "PT1M"},
        {"initial_interval": "2s", "max_interval": "1m"},
        {"initial_interval_ms": 2_000, "max_interval_ms": 60_000},
    ):
        assert retry_policy.parse(data, default=DEFAULT) == expected


def test_unknown_fields_are_kept_and_given_back() -> None:
    policy = retry_policy.parse({"x_budget": [1]}, default=DEFAULT)
    assert policy.render()["x_budget"] == [1]
    assert retry_policy.parse(policy.render(), default=DEFAULT) == policy


@together(
    ("error_type", "matches"),
    [
        ("validation.payload_invalid", True),
        ("validation.schema_error", False),
        ("auth.token_expired", True),
        ("auth", False),
        ("author.unknown", False),
        ("external.auth.failure", False),
    ],
)
def test_non_retryable_errors_match_exactly_or_by_prefix(error_type: str, matches: bool) -> None:
    policy = RetryPolicy(non_retryable_errors=["validation.payload_invalid", "auth.*"])
    assert policy.matches(error_type) is matches


@together("on_exhaustion", ["dead_letter", "discard"])
@together(
    ("given", "action", "reason"),
    [
        ({"attempt": 1}, "retry", "retry"),
        ({"attempt": 2}, "retry", "retry"),
        ({"attempt": 3}, "discard", "exhausted"),
        ({"attempt": 4}, "discard", "exhausted"),
        ({"attempt": 1, "retryable": True}, "retry", "retry"),
        ({"attempt": 1, "retryable": False}, "discard", "non_retryable"),
        ({"attempt": 1, "error_type": "auth.gone"}, "discard", "non_retryable"),
        ({"attempt": 1, "error_type": "auth.gone", "code": "RETRY"}, "discard", "non_retryable"),
        ({"attempt": 1, "retryable": False, "code": "RETRY"}, "retry", "retry"),
        ({"attempt": 3, "code": "RETRY"}, "discard", "exhausted"),
        ({"attempt": 1, "code": "handler_error"}, "retry", "retry"),
        ({"attempt": 1, "code": "DISCARD"}, "discard", "discard"),
        ({"attempt": 1, "code": "FAIL"}, "discard", "fail"),
        ({"attempt": 1, "code": "DEAD_LETTER"}, "discard", "dead_letter"),
        ({"attempt": 3, "code": "DISCARD", "retryable": True}, "discard", "discard"),
    ],
)
def test_the_handler_decides_first_and_the_policy_after_it(
    given: dict[str, Any], action: str, reason: str, on_exhaustion: Any
) -> None:
    policy = RetryPolicy(non_retryable_errors=["auth.*"], on_exhaustion=on_exhaustion)
    decision = policy.decide(**{"error_type": "Boom", "random": lambda: 0.5, **given})
    assert (decision.action, decision.reason) == (action, reason)
    by_policy = reason in {"exhausted", "non_retryable"} and on_exhaustion == "dead_letter"
    assert decision.dead_letter is (reason == "dead_letter" or by_policy)
    assert (decision.delay > timedelta(0)) is (action == "retry")


@pytest.mark.parametrize("max_attempts", [0, 1])
def test_zero_and_one_attempts_both_mean_no_retry(max_attempts: int) -> None:
    policy = RetryPolicy(max_attempts=max_attempts)
    decision = policy.decide(attempt=1, error_type="Boom", random=lambda: 0.5)
    assert decision.reason == "exhausted"


def test_a_delay_that_the_handler_asks_for_replaces_the_computed_one() -> None:
    decision = DEFAULT.decide(
        attempt=1, error_type="Retry", code="RETRY", random=lambda: 0.5, delay=timedelta(hours=1)
    )
    assert decision.delay == timedelta(hours=1)

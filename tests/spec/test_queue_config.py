"""The configuration of a queue: what is taken, what is rejected and why, and what holds."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_ojs.spec.errors import InvalidRequest, InvalidRetryPolicy, UnsupportedFeature
from django_ojs.spec.queue_config import MAX_BYTES, Backpressure, QueueConfig, check, merge
from django_ojs.spec.states import State
from tests.cases import together

LIMIT = 10 * 1024 * 1024


def rejected(given: object, **options: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        check(given, max_envelope_bytes=LIMIT, **options)
    return caught.value


def test_a_queue_without_configuration_is_unbounded_and_rejects_when_it_once_is() -> None:
    config = QueueConfig.of({})
    assert config.backpressure == Backpressure(
        max_depth=None, max_size_bytes=None, strategy="reject", warning_threshold=0.8
    )
    assert config.max_envelope_bytes is None
    assert (config.retention, config.values) == ({}, {})


@pytest.mark.parametrize("unbounded", [0, None])
def test_zero_and_null_mean_unbounded(unbounded: int | None) -> None:
    bounds = {"max_depth": unbounded, "max_size_bytes": unbounded}
    check({"backpressure": bounds, "concurrency": unbounded}, max_envelope_bytes=LIMIT)
    config = QueueConfig.of({"backpressure": bounds})
    assert (config.backpressure.max_depth, config.backpressure.max_size_bytes) == (None, None)


@together(
    ("given", "field"),
    [
        ({"backpressure": []}, "backpressure"),
        ({"backpressure": {"max_depth": -1}}, "backpressure.max_depth"),
        ({"backpressure": {"max_depth": True}}, "backpressure.max_depth"),
        ({"backpressure": {"max_depth": "5"}}, "backpressure.max_depth"),
        ({"backpressure": {"max_size_bytes": 1.5}}, "backpressure.max_size_bytes"),
        ({"backpressure": {"strategy": "drop"}}, "backpressure.strategy"),
        ({"backpressure": {"strategy": []}}, "backpressure.strategy"),
        ({"backpressure": {"warning_threshold": 1.1}}, "backpressure.warning_threshold"),
        ({"backpressure": {"warning_threshold": False}}, "backpressure.warning_threshold"),
        ({"max_size": "many"}, "max_size"),
        ({"overflow_policy": "drop_newest"}, "overflow_policy"),
        ({"max_envelope_bytes": LIMIT + 1}, "max_envelope_bytes"),
        ({"concurrency": 1.0}, "concurrency"),
        ({"rate_limit": 7}, "rate_limit"),
        ({"rate_limit": {"period": "an hour"}}, "rate_limit.period"),
        ({"rate_limit": {"limit": -1}}, "rate_limit.limit"),
        ({"rate_limit": {"limit": 5}}, "rate_limit.period"),
        ({"rate_limit": {"rate": {"period": "PT1M"}}}, "rate_limit.rate.limit"),
        ({"rate_limit": {"throttle": {"limit": 0, "period": "PT1M"}}}, "rate_limit.throttle.limit"),
        ({"rate_limit": {"max_per_second": 0.5}}, "rate_limit.max_per_second"),
        ({"rate_limit": {"on_limit": "fail"}}, "rate_limit.on_limit"),
        ({"retention": {"completed": "a week"}}, "retention.completed"),
        ({"retention": {"cancelled": "PT0S"}}, "retention.cancelled"),
        ({"retention": {"discarded": 7}}, "retention.discarded"),
        ({"visibility_timeout": -1}, "visibility_timeout"),
        ({"default_timeout": "soon"}, "default_timeout"),
        ({"default_timeout": 2_147_484}, "default_timeout"),
        ({"visibility_timeout": "P30D"}, "visibility_timeout"),
        ({"dead_letter_queue": "No"}, "dead_letter_queue"),
        ({"dead_letter": {"retention": {"max_age": "P"}}}, "dead_letter.retention.max_age"),
        ({"allowed_job_types": "email.*"}, "allowed_job_types"),
        ({"producers": [1]}, "producers"),
        ({"tenant_limits": 1000}, "tenant_limits"),
        ({"tenant_limits": {"max_queue_depth": -1}}, "tenant_limits.max_queue_depth"),
        ({"tenant_limits": {"tenants": ["acme"]}}, "tenant_limits.tenants"),
        ({"tenant_limits": {"tenants": {"two words": {}}}}, "tenant_limits.tenants"),
        ({"tenant_limits": {"tenants": {"acme": 5}}}, "tenant_limits.tenants.acme"),
        (
            {"tenant_limits": {"tenants": {"acme": {"max_queue_depth": "5"}}}},
            "tenant_limits.tenants.acme.max_queue_depth",
        ),
        ({"tenant_fairness": True}, "tenant_fairness"),
        ({"tenant_fairness": {"enabled": 1}}, "tenant_fairness.enabled"),
        ({"tenant_fairness": {"strategy": "random"}}, "tenant_fairness.strategy"),
        ({"tenant_fairness": {"default_weight": 0}}, "tenant_fairness.default_weight"),
        # It would have no effect.
        ({"tenant_fairness": {"weights": {"acme": 3}}}, "tenant_fairness.enabled"),
        ({"tenant_fairness": {"weights": {"acme": 1.5}}}, "tenant_fairness.weights.acme"),
        ({"tenant_fairness": {"weights": {"": 1}}}, "tenant_fairness.weights"),
        # Other unknown names are stored.
        ({"concurency": 3}, "concurency"),
        ({"default_retry": {"max_attempt": 1}}, "default_retry.max_attempt"),
        ({"retention": {"canceled": "P1D"}}, "retention.canceled"),
        (
            {"tenant_limits": {"tenants": {"acme": {"max_queue_dept": 5}}}},
            "tenant_limits.tenants.acme.max_queue_dept",
        ),
    ],
)
def test_an_error_names_the_field_and_not_the_value(given: dict[str, Any], field: str) -> None:
    error = rejected(given)
    assert error.message.startswith(field + " ")
    assert error.details["field"] == field if field != "dead_letter_queue" else True
    assert rejected({**given}, path="config").message.startswith(f"config.{field} ")


@pytest.mark.parametrize(
    ("name", "limit", "none"),
    [
        ("dead_letter_max_size", 5, 0),
    ],
)
def test_a_limit_that_is_not_enforced_is_rejected(name: str, limit: Any, none: Any) -> None:
    with pytest.raises(UnsupportedFeature) as caught:
        check({name: limit}, max_envelope_bytes=LIMIT, path="config")
    assert (caught.value.code, caught.value.status) == ("unsupported", 422)
    assert caught.value.details["field"] == f"config.{name}"
    for value in (none, None):
        assert check({name: value}, max_envelope_bytes=LIMIT) == {name: value}


def test_a_member_that_is_not_supported_is_rejected_by_its_path() -> None:
    kept = {"max_age": "P1D", "max_count": 0}
    check({"dead_letter": {"retention": kept}}, max_envelope_bytes=LIMIT)
    with pytest.raises(UnsupportedFeature) as caught:
        check({"dead_letter": {"retention": {**kept, "max_count": 5}}}, max_envelope_bytes=LIMIT)
    assert caught.value.details["field"] == "dead_letter.retention.max_count"


def test_the_jobs_of_a_limited_queue_wait() -> None:
    check({"rate_limit": {"max_per_second": 1, "on_limit": "wait"}}, max_envelope_bytes=LIMIT)
    with pytest.raises(UnsupportedFeature) as caught:
        check({"rate_limit": {"on_limit": "drop"}}, max_envelope_bytes=LIMIT)
    assert caught.value.details["field"] == "rate_limit.on_limit"


def test_a_bad_retry_policy_is_reported_as_one() -> None:
    with pytest.raises(InvalidRetryPolicy) as caught:
        check({"default_retry": {"max_attempts": -1}}, max_envelope_bytes=LIMIT)
    assert caught.value.details["field"] == "default_retry"


@pytest.mark.parametrize("given", [None, [], "x", 5])
def test_a_configuration_is_an_object(given: object) -> None:
    assert "must be an object" in rejected(given).message


def test_what_json_cannot_carry_is_rejected() -> None:
    assert rejected({"note": float("nan")}).status == 400
    assert rejected({"note": object()}).status == 400


def test_a_configuration_does_not_hold_documents() -> None:
    check({"note": "x" * (MAX_BYTES - 20)}, max_envelope_bytes=LIMIT)
    assert f"{MAX_BYTES} bytes" in rejected({"note": "x" * MAX_BYTES}).message


def test_names_with_an_underscore_in_front_are_the_servers() -> None:
    assert "underscore" in rejected({"_deleted": True}).message


@pytest.mark.parametrize(
    "given", [{"backpressure": {"strategy": "drop_oldest"}}, {"overflow_policy": "drop_oldest"}]
)
def test_the_default_policy_cannot_drop_jobs(given: dict[str, Any]) -> None:
    assert rejected(given, default_policy=True).details["field"] == "backpressure.strategy"
    assert check(given, max_envelope_bytes=LIMIT) == given


def test_changes_replace_by_top_level_key_and_null_takes_a_value_away() -> None:
    stored = {
        "backpressure": {"max_depth": 5, "strategy": "block"},
        "max_envelope_bytes": 2,
        "note": 1,
    }
    changed = merge(
        stored, {"backpressure": {"max_depth": 9}, "max_envelope_bytes": None, "more": [1]}
    )
    assert changed == {"backpressure": {"max_depth": 9}, "note": 1, "more": [1]}
    assert stored["max_envelope_bytes"] == 2


def test_a_bound_in_the_flat_spelling_changes_just_itself() -> None:
    stored = {"backpressure": {"max_depth": 5, "strategy": "block"}}
    assert merge(stored, {"max_size": 9}) == {"backpressure": {"max_depth": 9, "strategy": "block"}}
    assert merge({}, {"max_size": 9, "overflow_policy": "drop_oldest", "max_size_bytes": 7}) == {
        "backpressure": {"max_depth": 9, "strategy": "drop_oldest", "max_size_bytes": 7}
    }


def test_of_two_spellings_in_one_request_backpressure_wins() -> None:
    given = {"max_size": 9, "backpressure": {"max_depth": 4}, "overflow_policy": "block"}
    assert merge({}, given) == {"backpressure": {"max_depth": 4, "strategy": "block"}}
    assert merge({}, {"max_size": 9, "backpressure": None}) == {"backpressure": {"max_depth": 9}}


def test_responses_carry_both_spellings_and_every_unknown_field() -> None:
    own = {"backpressure": {"max_depth": 9, "strategy": "block"}, "colour": {"deep": ["blue"]}}
    assert QueueConfig.of(own).values == {
        **own,
        "max_size": 9,
        "overflow_policy": "block",
    }


def test_what_a_queue_does_not_say_the_default_policy_says_member_by_member() -> None:
    default = {
        "max_envelope_bytes": 10,
        "retention": {"completed": "P1D", "discarded": "P30D"},
        "backpressure": {"max_depth": 100, "warning_threshold": 0.5},
    }
    own = {"retention": {"completed": "PT1H"}, "backpressure": {"max_depth": 0}}
    config = QueueConfig.of(own, default)
    assert config.max_envelope_bytes == 10
    assert config.retention == {
        (State.COMPLETED, False): timedelta(hours=1),
        (State.DISCARDED, False): timedelta(days=30),
    }
    assert config.backpressure == Backpressure(max_depth=None, warning_threshold=0.5)


def test_a_threshold_of_zero_is_kept() -> None:
    bounds = {"max_depth": 4, "warning_threshold": 0}
    assert QueueConfig.of({"backpressure": bounds}).backpressure.warning_threshold == 0

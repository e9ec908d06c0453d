"""The rate limit policy of a job in Python, and the key that is made of its template."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import django_ojs as ojs
from django_ojs.enqueue_options import Options, Request, envelope_of
from django_ojs.extensions.limits.rate_limit_policy import (
    RateLimitPolicy,
    hide_arguments,
    key_of,
    key_of_job,
)
from django_ojs.handler_registry import registry
from django_ojs.handlers import Handler
from django_ojs.spec.errors import InvalidRequest
from tests.cases import together


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make a handler with a policy, which is known for one test."""

    def made(policy: Any) -> Handler[..., Any]:
        monkeypatch.setattr(registry, "handlers", dict(registry.handlers))

        def report(customer: Any, month: str = "all") -> None:
            """Do nothing."""

        return ojs.job("test.limited", rate_limit=policy)(report)

    return made


def key(handler: Handler[..., Any], *args: Any) -> str | None:
    return key_in(handler.request(*args))


def key_in(request: Request) -> str | None:
    envelope = envelope_of(request)
    return key_of_job(envelope.rate_limit, envelope.queue) if envelope.rate_limit else None


def hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@pytest.mark.parametrize(
    ("template", "args", "expected"),
    [
        ("customer:{customer}", (7,), "customer:7"),
        ("{customer}:{month}", (7,), "7:all"),
        ("{customer}:{month}", (7, "may"), "7:may"),
        ("{customer[id]}", ({"id": "x"},), "x"),
        ("type:{type}", (7,), "type:test.limited"),
        ("queue:{queue}", (7,), "queue:default"),
        # A value that a key cannot have is replaced by its hash.
        ("mail:{customer}", ("a@b.c",), "mail:d648b243a3e817eaa3309e00e183483f"),
        ("{customer}", (-5,), "37aa1ccf80e481832b2db282d4d4f895"),
        ("{customer}", ("a" * 300,), "9835fa6bf4e20a9b9ea812506302e989"),
    ],
)
def test_the_key_is_made_of_the_arguments(
    build: Any, template: str, args: Any, expected: str
) -> None:
    assert key(build({"key": template, "concurrency": 1}), *args) == expected


# Values that the text between them separates stay as they are.
@together(
    ("template", "values", "expected"),
    [
        ("c:{v}:{w}", ("tom", "c.may-1_x"), "c:tom:c.may-1_x"),
        ("c:{v}:month:{w}", ("month", "c"), "c:month:month:c"),
        ("{v}-{w}", ("x:y", "c"), "x:y-c"),
        ("c:{v}", ("x:y", ""), "c:x:y"),
        ("{type}:{v}", ("a.b", ""), "test.limited:a.b"),
        ("c:{v}:{w}", ("x:y", "z"), f"c:{hashed('x:y')}:z"),
        ("c:{v}:{w}", ("x", "y:z"), f"c:x:{hashed('y:z')}"),
        ("{type}.{v}", ("a.b", ""), f"test.limited.{hashed('a.b')}"),
        ("{v}{w}", ("x", "yz"), hashed("x") + hashed("yz")),
    ],
)
def test_a_value_that_could_be_taken_for_two_is_replaced_by_its_hash(
    template: str, values: tuple[str, str], expected: str
) -> None:
    arguments = dict(zip("vw", values, strict=True))
    found = key_of(template, type="test.limited", queue="q", arguments=arguments)
    assert found == expected


_TEMPLATES = st.sampled_from(
    ["c:{v}:{w}", "{v}{w}", "{v}-{w}:", "{v}:a:{w}", "{type}:{v}.{w}", "{v}.{type}.{w}", "{v}x{w}"]
)
_VALUES = st.text("ax:.-@", max_size=5)
_ARGUMENTS = st.fixed_dictionaries({"v": _VALUES, "w": _VALUES})


@given(template=_TEMPLATES, one=_ARGUMENTS, other=_ARGUMENTS)
@example(template="c:{v}:{w}", one={"v": "x:y", "w": "z"}, other={"v": "x", "w": "y:z"})
@example(template="{v}{w}", one={"v": "x", "w": "yz"}, other={"v": "xy", "w": "z"})
@example(template="{v}:a:{w}", one={"v": "x", "w": "y:a:z"}, other={"v": "x:a:y", "w": "z"})
def test_different_values_give_different_keys(
    template: str, one: dict[str, str], other: dict[str, str]
) -> None:
    first, second = (
        key_of(template, type="a.x", queue="q", arguments=each) for each in (one, other)
    )
    assert (first == second) == (one == other)


@together(
    ("template", "values", "shown"),
    [
        ("c:{v}:{w}", ("x", "z"), "c:*:z"),
        ("c:{v}:{w}", ("x:y", "z"), "c:*:z"),
        ("c:{v}:{w}", ("x", "y:z"), f"c:*:{hashed('y:z')}"),
        ("{v}{w}", ("x", "yz"), f"*{hashed('yz')}"),
    ],
)
def test_the_hidden_argument_of_several_is_found_in_the_key(
    template: str, values: tuple[str, str], shown: str
) -> None:
    found = key_of(template, type="t", queue="q", arguments=dict(zip("vw", values, strict=True)))
    hidden = hide_arguments(found, [(template, "t")], lambda name: name == "v", "*")
    assert hidden == shown


def test_a_template_that_names_no_parameter_is_rejected_when_the_type_is_declared(
    build: Any,
) -> None:
    with pytest.raises(InvalidRequest, match=r"'custommer', which is not a parameter.*customer"):
        build({"key": "customer:{custommer}"})


def test_arguments_without_what_the_template_names_are_rejected(build: Any) -> None:
    handler = build({"key": "{customer[id]}"})
    with pytest.raises(InvalidRequest, match="cannot be made of"):
        handler.enqueue({"name": "no id"})


def test_a_job_without_a_handler_here_has_a_key_without_parameters() -> None:
    options = Options(rate_limit={"key": "api", "concurrency": 1})
    assert key_in(Request(type="test.elsewhere", args=[], options=options)) == "api"


@together("period", [float("nan"), float("inf"), 1e300, -1, timedelta(-1), None])
def test_a_period_that_is_no_time_is_rejected(period: Any) -> None:
    with pytest.raises(InvalidRequest) as raised:
        RateLimitPolicy.of({"key": "api", "rate": (5, period)}).render()
    assert raised.value.details["field"] == "rate_limit.rate.period"


def test_periods_may_be_timedeltas_seconds_and_text() -> None:
    policy = RateLimitPolicy(key="api", rate=(5, timedelta(minutes=1)), throttle=(2, 1.5))
    assert RateLimitPolicy.of(policy).render() == {
        "key": "api",
        "rate": {"limit": 5, "period": "PT1M"},
        "throttle": {"limit": 2, "period": "PT1.5S"},
    }
    given = {"limit": 5, "period": "PT1H"}
    for rate in (given, (5, "PT1H")):
        assert RateLimitPolicy.of({"key": "api", "rate": rate}).render()["rate"] == given


@together(
    ("policy", "field"),
    [
        (5, "rate_limit"),
        ({"concurrency": 1}, "rate_limit.key"),
        ({"key": ""}, "rate_limit.key"),
        ({"key": "{"}, "rate_limit.key"),
        ({"key": "{0}"}, "rate_limit.key"),
        ({"key": "a", "concurency": 1}, "rate_limit.concurency"),
        ({"key": "a", "concurrency": True}, "rate_limit.concurrency"),
        ({"key": "a", "rate": 5}, "rate_limit.rate"),
        ({"key": "a", "rate": (5, 0)}, "rate_limit.rate.period"),
        ({"key": "a", "rate": (0, 5)}, "rate_limit.rate.limit"),
    ],
)
def test_a_policy_that_means_nothing_is_rejected(policy: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        RateLimitPolicy.of(policy).render()
    assert raised.value.details["field"] == field

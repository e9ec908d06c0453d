"""The unique policy, ojs-unique-jobs §2 and §4, rule by rule."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ojs.spec import envelope, unique_policy
from django_ojs.spec.canonical import canonical
from django_ojs.spec.errors import UniqueKeyInvalid
from django_ojs.spec.unique_policy import UniquePolicy
from tests.cases import together
from tests.spec.test_canonical import TREES, rewritten, unambiguous

JOB: dict[str, Any] = {
    "type": "email.send",
    "queue": "notifications",
    "args": [{"user_id": 42, "template": "welcome", "locale": "en-US"}],
    "meta": {"tenant_id": "acme", "trace_id": "abc123"},
}


def key_of(policy: dict[str, Any], **job: Any) -> str:
    return unique_policy.parse(policy).key(**(JOB | job))


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@together(
    ("policy", "text"),
    [
        ({}, '{"type":"email.send"}'),
        ({"keys": []}, '{"type":"email.send"}'),
        ({"keys": ["queue"]}, '{"queue":"notifications","type":"email.send"}'),
        (
            {"keys": ["type", "queue", "args"], "args_keys": ["user_id"]},
            '{"args":{"user_id":42},"queue":"notifications","type":"email.send"}',
        ),
        (
            {"keys": ["type", "args"]},
            '{"args":[{"locale":"en-US","template":"welcome","user_id":42}],"type":"email.send"}',
        ),
        ({"args_keys": ["user_id"]}, '{"args":{"user_id":42},"type":"email.send"}'),
        (
            {"keys": ["meta"], "meta_keys": ["tenant_id", "region"]},
            '{"meta":{"tenant_id":"acme"},"type":"email.send"}',
        ),
        ({"key": ["user_id"]}, '{"args":{"user_id":42},"type":"email.send"}'),
    ],
)
def test_the_key_is_the_hash_of_the_canonical_dimensions(policy: Any, text: str) -> None:
    assert key_of(policy) == sha256(text)


def test_the_example_of_the_document_has_the_hash_that_any_other_program_computes() -> None:
    # printf '{"args":{"user_id":42},"queue":"notifications","type":"email.send"}' | sha256sum
    policy = {"keys": ["type", "queue", "args"], "args_keys": ["user_id"]}
    assert key_of(policy) == "71f9344b82e66297a49775bbe27752297922842b675330641ebe3ff4fea46c1f"


def test_names_select_from_the_first_object_and_digits_from_the_places() -> None:
    args = [7, {"a": 1, "0": 2}, {"b": 3}]
    assert unique_policy.select(args, ["a"]) == {"a": 1}
    assert unique_policy.select(args, ["0"]) == {"0": 2}
    assert unique_policy.select(args, ["2"]) == {"2": {"b": 3}}
    for missing in ("b", "3", "-1", "", "²", "9" * 5_000):
        assert unique_policy.select(args, [missing]) is None
    assert key_of({"args_keys": [0]}, args=[7, 8]) == key_of({"args_keys": ["0"]}, args=[7, 9])


@pytest.mark.parametrize("names", [["nobody"], ["user_id", "nobody"], ["1"]])
def test_what_args_do_not_have_is_rejected(names: list[str]) -> None:
    says = f"args_keys names '{names[-1]}', which is not in args"
    with pytest.raises(UniqueKeyInvalid, match=says):
        key_of({"keys": ["args"], "args_keys": names})


def test_the_key_of_core_takes_all_of_args_where_it_names_what_is_not_there() -> None:
    parsed = envelope.parse(
        {
            "type": "report.generate",
            "args": [42, "quarterly", {"include_charts": True}],
            "unique": {"key": ["report_id"], "period": "3600s", "on_conflict": "reject"},
        }
    )
    assert parsed.unique is not None
    assert parsed.unique.args_keys is None
    assert parsed.unique.keys == ("type", "args")
    assert parsed.unique.render() == {
        "key": ["report_id"],
        "keys": ["type", "args"],
        "period": "PT1H",
        "states": ["scheduled", "available", "pending", "active", "retryable"],
        "on_conflict": "reject",
    }
    found = envelope.parse({"type": "a", "args": [{"x": 1}], "options": {"unique": {"key": ["x"]}}})
    assert found.unique is not None
    assert found.unique.args_keys == ("x",)
    empty = unique_policy.parse({"key": []}, args=[5])
    assert (empty.keys, empty.args_keys) == (("type", "args"), None)


def test_keys_go_before_the_key_of_core() -> None:
    policy = unique_policy.parse({"keys": ["queue"], "key": ["user_id"]}, args=[])
    assert (policy.keys, policy.args_keys) == (("queue",), None)


def test_what_is_absent_null_or_empty_has_its_default() -> None:
    names = ("keys", "args_keys", "meta_keys", "states")
    policies: list[dict[str, Any]] = [
        {},
        dict.fromkeys((*names, "period")),
        {name: [] for name in names},
    ]
    for policy in policies:
        parsed = unique_policy.parse(policy)
        assert parsed == UniquePolicy()
        assert parsed.keys == ("type",)
        assert parsed.period is None
        assert parsed.on_conflict == "reject"
        assert set(parsed.states) == {"available", "active", "scheduled", "retryable", "pending"}


@pytest.mark.parametrize(
    ("given", "period"),
    [
        ("PT1H", timedelta(hours=1)),
        ("P30D", timedelta(days=30)),
        ("3600s", timedelta(hours=1)),
        ("500ms", timedelta(milliseconds=500)),
        (timedelta(minutes=5), timedelta(minutes=5)),
    ],
)
def test_a_period_in_every_spelling(given: Any, period: timedelta) -> None:
    assert unique_policy.parse({"period": given}).period == period
    assert UniquePolicy(period=given).period == period


def test_a_period_in_numbers() -> None:
    assert unique_policy.parse({"period_ms": 1_500}).period == timedelta(seconds=1.5)
    assert unique_policy.parse({"period_ms": 1_500, "period": "PT1H"}).period == timedelta(hours=1)
    assert UniquePolicy(period=1.5).period == timedelta(seconds=1.5)


@together(
    ("policy", "message"),
    [
        (None, "unique must be an object"),
        ([], "unique must be an object"),
        ("reject", "unique must be an object"),
        ({"arg_keys": ["a"]}, "unique may have the fields keys, args_keys"),
        ({"extra": {}}, "unique may have the fields"),
        ({1: 2}, "unique may have the fields"),
        ({"keys": "type"}, "unique.keys must be an array"),
        ({"keys": {"type": 1}}, "unique.keys must be an array"),
        ({"keys": [1]}, "unique.keys must be an array of strings"),
        ({"keys": [["type"]]}, "unique.keys must be an array of strings"),
        ({"keys": ["argz"]}, "unique.keys may hold type, queue, args, meta"),
        ({"keys": ["Type"]}, "unique.keys may hold"),
        ({"keys": ["type", "type"]}, "unique.keys must name nothing twice"),
        ({"keys": ["meta"]}, "unique.meta_keys is required"),
        ({"keys": ["meta"], "meta_keys": []}, "unique.meta_keys is required"),
        ({"keys": ["type"], "args_keys": ["a"]}, "unique.args_keys needs args in unique.keys"),
        ({"keys": ["type"], "meta_keys": ["a"]}, "unique.meta_keys needs meta in unique.keys"),
        ({"args_keys": [True]}, "unique.args_keys must be an array of strings"),
        ({"args_keys": [-1]}, "unique.args_keys must be an array of strings"),
        ({"args_keys": [0, "0"]}, "unique.args_keys must name nothing twice"),
        ({"meta_keys": [0]}, "unique.meta_keys must be an array of strings"),
        ({"key": "a"}, "unique.key must be an array"),
        ({"key": [None]}, "unique.key must be an array of strings"),
        ({"key": ["a"], "keys": 0}, "unique.keys must be an array"),
        ({"key": ["a"], "args_keys": False}, "unique.args_keys must be an array"),
        ({"period": 60}, "unique.period must be an ISO 8601 duration"),
        ({"period": True}, "unique.period must be an ISO 8601 duration"),
        ({"period": "soon"}, "unique.period must be an ISO 8601 duration"),
        ({"period": "PT0S"}, "unique.period must be greater than zero"),
        ({"period": "P9999Y"}, "unique.period must be at most 1000 years"),
        ({"period_ms": 10**400}, "unique.period must be a number between zero"),
        ({"period_ms": -1}, "unique.period must be a number between zero"),
        ({"period_ms": "1"}, "unique.period must be a number between zero"),
        ({"states": "active"}, "unique.states must be an array"),
        ({"states": ["running"]}, "unique.states may hold scheduled, available"),
        ({"states": ["active", "active"]}, "unique.states must name nothing twice"),
        ({"on_conflict": "drop"}, "unique.on_conflict must be one of reject, replace"),
        ({"on_conflict": ["reject"]}, "unique.on_conflict must be one of"),
        ({"on_conflict": False}, "unique.on_conflict must be one of"),
    ],
)
def test_an_invalid_policy_is_rejected_by_field_and_rule(policy: Any, message: str) -> None:
    with pytest.raises(UniqueKeyInvalid) as caught:
        unique_policy.parse(policy)
    assert caught.value.message.startswith(message)
    assert (caught.value.status, caught.value.code) == (400, "invalid_request")


@pytest.mark.parametrize("strategy", ["reject", "replace", "replace_except_schedule", "ignore"])
def test_a_policy_is_read_back_from_what_it_renders(strategy: Any) -> None:
    policy = UniquePolicy(
        keys=["type", "queue", "args", "meta"],
        args_keys=["a", 0],
        meta_keys=["b"],
        period="PT90S",
        states=["completed", "active"],
        on_conflict=strategy,
    )
    assert unique_policy.parse(policy.render()) == policy
    assert policy.render()["period"] == "PT1M30S"
    assert policy.render()["args_keys"] == ["a", "0"]


def test_use_existing_is_another_word_for_ignore() -> None:
    assert unique_policy.parse({"on_conflict": "use_existing"}).on_conflict == "ignore"


@given(st.lists(TREES, max_size=3).filter(unambiguous), st.sampled_from(["NFC", "NFD"]))
def test_the_key_depends_on_neither_order_nor_form_nor_kind_of_array(args: Any, form: str) -> None:
    policy = {"keys": ["args"]}
    assert key_of(policy, args=rewritten(args, form)) == key_of(policy, args=args)


@given(TREES, TREES)
def test_two_keys_are_the_same_only_where_the_jobs_are(one: Any, other: Any) -> None:
    policy = {"keys": ["args"]}
    same = key_of(policy, args=[one]) == key_of(policy, args=[other])
    assert same == (canonical(one) == canonical(other))


@given(
    st.dictionaries(
        st.sampled_from(sorted(unique_policy._KNOWN)) | st.text(max_size=3),
        TREES | st.lists(st.sampled_from(["type", "args", "meta", "active", "a", "0"])),
    )
)
def test_no_policy_raises_anything_but_our_error(policy: dict[str, Any]) -> None:
    with suppress(UniqueKeyInvalid):
        unique_policy.parse(policy, args=[1, {"a": 1}]).key(**JOB)

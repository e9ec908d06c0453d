"""The envelope: every dialect is read, every constraint of core §5 is checked."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ojs.spec import envelope, errors, json, retry_policy
from django_ojs.spec.envelope import Envelope, Limits, fields
from django_ojs.spec.retry_policy import DEFAULT, RetryPolicy
from tests.cases import together

ID = "019461a8-1a2b-7c3d-8e4f-5a6b7c8d9e0f"


def parse(**fields: Any) -> Envelope:
    return envelope.parse({"type": "email.send", "args": [], **fields})


def accept(**fields: Any) -> Envelope:
    parsed = parse(**fields)
    envelope.validate(parsed)
    return parsed


def reject(limits: Limits = envelope.DEFAULT_LIMITS, **fields: Any) -> errors.OJSError:
    with pytest.raises(errors.OJSError) as rejected:
        envelope.validate(
            envelope.parse({"type": "email.send", "args": [], **fields}, limits=limits), limits
        )
    return rejected.value


@pytest.mark.requirement("CORE-5.2-1")
def test_the_defaults_are_the_documented_ones() -> None:
    parsed = accept()
    assert parsed == Envelope(id=parsed.id, type="email.send", args=[])
    assert (parsed.queue, parsed.priority, parsed.meta) == ("default", 0, {})
    assert (parsed.specversion, parsed.retry, parsed.timeout_ms) == ("1.0.0-rc.1", None, None)
    assert parsed.id.version == 7
    assert envelope.options_of(parsed) == {}


@pytest.mark.parametrize("name", ["type", "args"])
@pytest.mark.parametrize("fields", [{}, {"type": None, "args": None}])
def test_type_and_args_are_required(name: str, fields: dict[str, Any]) -> None:
    data = {"type": "a", "args": [], **{key: fields[key] for key in fields if key == name}}
    if not fields:
        del data[name]
    with pytest.raises(errors.InvalidRequest, match=f"^{name} is required$"):
        envelope.parse(data)


@pytest.mark.parametrize("data", [None, [], "x", 1])
def test_a_job_is_an_object(data: Any) -> None:
    with pytest.raises(errors.InvalidRequest, match="must be an object"):
        envelope.parse(data)


@pytest.mark.parametrize("value", ["1.0", "1.0.0-rc.1"])
def test_both_spec_versions_are_kept(value: str) -> None:
    assert accept(specversion=value).specversion == value


@pytest.mark.parametrize("value", ["2.0", "1", "", "1.0.0-rc.1 "])
def test_other_spec_versions_are_unsupported(value: str) -> None:
    assert isinstance(reject(specversion=value), errors.UnsupportedFeature)


@pytest.mark.parametrize("good", ["a", "email.send", "data.etl.transform", "a-b_c.d9", "a" * 255])
def test_job_types_follow_the_naming_rule(good: str) -> None:
    assert accept(type=good).type == good


@together(
    "bad", ["Email.send", "1a", "a..b", ".a", "a.", "a.1", "a b", "a\n", "ä", "_a", "a/b", "a\0"]
)
def test_other_job_types_are_rejected(bad: str) -> None:
    error = reject(type=bad)
    assert isinstance(error, errors.InvalidJobType)
    assert error.code == "invalid_request"
    assert error.message.startswith("type must")


@together("good", ["a", "0", "default", "email-high.v2", "9-.", "q" * 255])
def test_queue_names_follow_the_naming_rule(good: str) -> None:
    assert accept(queue=good).queue == good


@together("bad", ["", "-a", ".a", "A", "a_b", "a b", "a\n", "ä", "\ud800"])
def test_other_queue_names_are_rejected(bad: str) -> None:
    assert isinstance(reject(queue=bad), errors.InvalidQueue)


def test_names_one_byte_over_their_limit_have_their_own_code() -> None:
    assert reject(type="a" * 256).code == "JOB_TYPE_TOO_LONG"
    assert reject(queue="a" * 256).code == "QUEUE_NAME_TOO_LONG"
    assert reject(queue="ä" * 128).code == "QUEUE_NAME_TOO_LONG"
    assert reject(Limits(queue_bytes=128), queue="a" * 129).code == "QUEUE_NAME_TOO_LONG"


@pytest.mark.requirement("CORE-5.2-7")
@pytest.mark.parametrize("value", [-100, 0, 100])
def test_priorities_from_minus_to_plus_a_hundred_pass(value: int) -> None:
    assert accept(priority=value).priority == value


@pytest.mark.requirement("CORE-5.2-2", "CORE-5.2-3", "CORE-5.2-10", "CORE-5.2-19")
@together(
    ("fields", "message"),
    [
        ({"priority": 101}, "priority must be between -100 and 100"),
        ({"priority": -101}, "priority must be between -100 and 100"),
        ({"priority": True}, "priority must be an integer"),
        ({"priority": 1.0}, "priority must be an integer"),
        ({"priority": "high"}, "priority must be an integer"),
        ({"type": 5}, "type must be a non-empty string"),
        ({"type": ""}, "type must be a non-empty string"),
        ({"queue": 5}, "queue must be a non-empty string"),
        ({"specversion": 1.0}, "specversion must be a string"),
        ({"id": ID.upper()}, "id must be a UUIDv7"),
        ({"id": 5}, "id must be a UUIDv7"),
        ({"args": {}}, "args must be an array"),
        ({"args": "x"}, "args must be an array"),
        ({"meta": []}, "meta must be an object"),
        ({"metadata": "x"}, "metadata must be an object"),
        ({"options": []}, "options must be an object"),
        ({"timeout": -1}, "timeout must be a positive integer of seconds"),
        ({"timeout": 1.5}, "timeout must be a positive integer"),
        ({"timeout": True}, "timeout must be a positive integer"),
        ({"timeout": 10**10}, "timeout must be at most"),
        ({"timeout_ms": 10**400}, "timeout_ms must be at most"),
        ({"visibility_timeout": "soon"}, "visibility_timeout must be an ISO 8601 duration"),
        ({"scheduled_at": "2026-03-15T09:30:00"}, "scheduled_at must end with Z"),
        ({"scheduled_at": 5}, "scheduled_at must be an RFC 3339"),
        ({"delay_until": "x"}, "delay_until must be an RFC 3339"),
        ({"expires_at": "2026-03-15T09:30:00"}, "expires_at must end with Z"),
        ({"retry": "x"}, "retry must be an object"),
        ({"retry_policy": {"max_attempts": -1}}, "retry.max_attempts must be"),
        ({"unique": True}, "unique must be an object"),
        ({"rate_limit": 5}, "rate_limit must be an object"),
        ({"schema": "no uri"}, "schema must be a URI"),
        ({"schema": 5}, "schema must be a URI"),
        ({"schema": "urn:" + "x" * 3_000}, "schema must be at most"),
        ({"tags": "x"}, "tags must be an array of strings"),
        ({"tags": [1]}, "tags must be an array of strings"),
        ({"tags": {}}, "tags must be an array of strings"),
        ({"tags": ["\0"]}, "tags[0] contains a NUL"),
        ({"pending": 1}, "pending must be a boolean"),
        ({"args": [{"a": float("nan")}]}, "args[0].a is NaN"),
        ({"args": [2**53]}, "args[0] is an integer beyond"),
        ({"args": [b"x"]}, "args[0] is a bytes"),
        ({"meta": {"a": "\0"}}, "meta.a contains a NUL"),
        ({"meta": {1: 2}}, "meta has a name that is a int"),
        ({"unique": {"keys": {1}}}, "unique.keys must be an array of strings"),
        ({"unique": {"args_keys": ["\0"]}}, "unique.args_keys[0] contains a NUL"),
        ({"x_new": [object()]}, "x_new[0] is a object"),
    ],
)  # fmt: skip
def test_each_error_names_the_field_and_the_rule(fields: dict[str, Any], message: str) -> None:
    error = reject(**fields)
    assert error.message.startswith(message)
    assert error.status in {400, 422}


def test_null_equals_absent() -> None:
    nothing = dict.fromkeys(envelope.OPTIONS, None)
    parsed = accept(id=None, specversion=None, options=None, **nothing)
    assert parsed == Envelope(id=parsed.id, type="email.send", args=[])
    assert accept(options=nothing).extra == {}


@pytest.mark.requirement("CORE-5.3-1")
def test_what_the_server_sets_is_ignored() -> None:
    parsed = accept(**dict.fromkeys(envelope.SYSTEM, "forged"))
    assert parsed == Envelope(id=parsed.id, type="email.send", args=[])


def test_unknown_fields_are_kept() -> None:
    parsed = accept(x_new={"a": 1}, options={"x_deep": 2, "queue": "mail"})
    assert parsed.extra == {"x_new": {"a": 1}, "options": {"x_deep": 2}}


def test_options_win_over_the_top_level_in_every_spelling() -> None:
    parsed = accept(
        queue="low",
        priority=1,
        timeout_ms=5,
        retry={"max_attempts": 2},
        scheduled_at="+PT1S",
        options={
            "queue": "high",
            "timeout": 30,
            "retry_policy": {"max_attempts": 9},
            "delay_until": "+PT9S",
        },
    )
    assert (parsed.queue, parsed.priority, parsed.timeout_ms) == ("high", 1, 30_000)
    assert parsed.retry is not None
    assert parsed.retry.max_attempts == 9
    assert parsed.scheduled_at == timedelta(seconds=9)


def test_metadata_is_merged_into_meta() -> None:
    parsed = accept(meta={"a": 1}, metadata={"a": 0, "b": 2}, options={"metadata": {"c": 3}})
    assert parsed.meta == {"a": 1, "b": 2, "c": 3}


@pytest.mark.requirement("CORE-5.2-12")
@together(
    ("fields", "expected"),
    [
        ({"timeout": 0}, None),
        ({"timeout_ms": 0}, None),
        ({"timeout": 30}, 30_000),
        ({"timeout": "30s"}, 30_000),
        ({"timeout": "PT30S"}, 30_000),
        ({"timeout_ms": 1_500}, 1_500),
        ({"timeout_ms": 1_500, "timeout": 30}, 1_500),
    ],
)
def test_a_timeout_is_read_in_every_dialect(fields: dict[str, Any], expected: Any) -> None:
    assert accept(**fields).timeout_ms == expected
    renamed = {f"visibility_{name}": value for name, value in fields.items()}
    assert accept(**renamed).visibility_timeout_ms == expected


def test_an_absolute_time_is_kept_as_it_was_written() -> None:
    parsed = accept(scheduled_at="2026-03-15T09:30:00+02:00", expires_at="+PT1H")
    assert parsed.scheduled_at == datetime(2026, 3, 15, 7, 30, tzinfo=UTC)
    assert parsed.scheduled_at_text == "2026-03-15T09:30:00+02:00"
    assert (parsed.expires_at, parsed.expires_at_text) == (timedelta(hours=1), None)


def test_the_default_of_the_site_completes_a_partial_policy() -> None:
    site = RetryPolicy(max_attempts=8, jitter=False)
    data = {"type": "a", "args": []}
    assert envelope.parse(data, default_retry=site).retry is None  # PUSH applies it.
    partial = envelope.parse({**data, "retry": {"max_attempts": 2}}, default_retry=site)
    assert partial.retry == RetryPolicy(max_attempts=2, jitter=False)


def test_a_policy_that_is_read_again_is_read_by_its_json_and_the_default() -> None:
    data = {"type": "a", "args": []}

    def read(policy: Any, default: RetryPolicy = RetryPolicy()) -> Any:  # noqa: B008  # it is frozen
        return envelope.parse({**data, "retry": policy}, default_retry=default).retry

    assert read({"max_attempts": 2}) == read({"max_attempts": 2}) == RetryPolicy(max_attempts=2)
    other = RetryPolicy(max_attempts=2, jitter=False)
    assert read({"max_attempts": 2}, RetryPolicy(jitter=False)) == other
    assert read({"max_attempts": 1}).max_attempts == 1
    for wrong in (True, 1.0):
        with pytest.raises(errors.InvalidRetryPolicy):
            read({"max_attempts": wrong})
    kept = read({"max_attempts": 1, "x_own": True}).extra["x_own"]
    assert (kept, read({"max_attempts": 1, "x_own": 1}).extra["x_own"]) == (True, 1)
    for number in range(1_000):
        assert read({"max_attempts": number}).max_attempts == number
    assert len(fields._policies) <= fields._MOST_KNOWN


def size_of(data: dict[str, Any]) -> int:
    return len(json.dumps(data).encode())


@pytest.mark.requirement("CORE-14-5")
@pytest.mark.parametrize("filler", ["x", "ä", '"'])
def test_the_envelope_limit_is_exact_to_the_byte(filler: str) -> None:
    data = {"type": "email.send", "args": [filler * 5_000]}
    exact = Limits(envelope_bytes=size_of(data))
    envelope.validate(envelope.parse(data, limits=exact), exact)
    under = Limits(envelope_bytes=size_of(data) - 1)
    for attempt in (lambda: envelope.parse(data, limits=under), lambda: envelope.validate(
        envelope.parse(data), under
    )):  # fmt: skip
        with pytest.raises(errors.PayloadTooLarge) as rejected:
            attempt()
        details = rejected.value.details
        assert details["actual_bytes"] == details["size_bytes"] == size_of(data)
        assert details["max_bytes"] == details["max_size_bytes"] == size_of(data) - 1


def test_the_limit_of_meta_is_exact_to_the_byte() -> None:
    meta = {"a": "x" * (65_536 - size_of({"a": ""}))}
    assert accept(meta=meta).meta == meta
    error = reject(meta={"a": meta["a"] + "x"})
    assert isinstance(error, errors.MetadataTooLarge)
    assert error.details["actual_bytes"] == 65_537


def test_a_change_by_middleware_is_validated_too() -> None:
    parsed = accept()
    parsed.meta["user"] = object()  # type: ignore[assignment]  # the point of the test
    with pytest.raises(errors.InvalidMetadata, match=r"^meta\.user is a object"):
        envelope.validate(parsed)
    with pytest.raises(errors.InvalidRequest, match="scheduled_at is a naive datetime"):
        envelope.validate(
            Envelope(type="a", scheduled_at=datetime(2026, 1, 1))  # noqa: DTZ001 - naive is the point
        )
    with pytest.raises(errors.InvalidRequest, match="id must be a UUIDv7"):
        envelope.validate(Envelope(id=UUID(int=0), type="a"))


def test_the_stored_options_hold_what_has_no_column() -> None:
    parsed = accept(
        specversion="1.0",
        scheduled_at="2026-03-15T09:30:00Z",
        retry={"max_attempts": 5},
        unique={"keys": ["type"]},
        schema="urn:ojs:schema:email.send:v1",
        tags=["a"],
        visibility_timeout=30,
        rate_limit={"key": "k"},
        x_new=1,
    )
    options = envelope.options_of(parsed)
    assert set(options) == {
        "specversion", "scheduled_at", "retry", "unique", "schema", "tags",
        "visibility_timeout_ms", "rate_limit", "extra",
        "limit_key",  # An extension stores it with `rate_limit`.
    }  # fmt: skip
    assert retry_policy.of_options(options) == RetryPolicy(max_attempts=5)
    assert retry_policy.of_options({}) == retry_policy.of_options(None) == DEFAULT
    assert json.loads(json.dumps(options)) == options


@given(st.dictionaries(st.text(max_size=12) | st.sampled_from(sorted(envelope.OPTIONS)), st.none()
    | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers())
    | st.dictionaries(st.text(), st.integers())))  # fmt: skip
def test_no_fields_raise_anything_but_our_errors(fields: dict[str, Any]) -> None:
    for data in (
        fields,
        {"type": "a", "args": [], "options": fields},
        {"type": "a", "args": [], **fields},
    ):
        try:
            parsed = envelope.parse(data)
            envelope.validate(parsed)
        except errors.OJSError:
            continue
        json.dumps(envelope.options_of(parsed))


def test_many_are_read_as_each_of_them_is() -> None:
    plain = {"type": "a.b", "meta": {"in": [1]}, "options": {"priority": 3}}
    unique = {"options": {"unique": {"keys": ["args"]}}}
    items: list[dict[str, Any]] = [
        {**plain, "args": [1]},
        {**plain, "args": [2]},
        {**plain, "args": [3], "meta": {"in": [True]}},
        {**plain, **unique, "args": [4]},
        {**plain, **unique, "args": [5]},
        {**plain, "args": [6], "id": ID},
        {**plain, "args": [7], "options": {"tags": ["t"]}},
        {**plain, "args": [8], "options": {"tags": ["t"]}},
    ]
    found = envelope.parse_many(items)
    for made, item in zip(found, items, strict=True):
        assert made == replace(envelope.parse(item), id=made.id)
        assert made.document == item
    assert len({made.id for made in found}) == len(items)
    assert str(found[5].id) == items[5]["id"]
    for name in ("meta", "tags", "extra"):
        assert len({id(getattr(made, name)) for made in found}) == len(items)
    assert found[0].meta["in"] is not found[1].meta["in"]


@pytest.mark.parametrize(
    ("args", "error"),
    [
        ("text", errors.InvalidArgs),
        (None, errors.InvalidRequest),
        (["x" * 99], errors.PayloadTooLarge),
    ],
)
def test_one_of_many_is_rejected_as_it_is_alone(args: Any, error: type[errors.OJSError]) -> None:
    items = [{"type": "a.b", "args": [1]}, {"type": "a.b", "args": args}]
    with pytest.raises(error):
        envelope.parse_many(items, limits=Limits(envelope_bytes=90))

"""The setting OJS: each key is checked, and a bad one is named."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, fields
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_ojs import conf
from django_ojs.conf import Settings, settings
from django_ojs.extensions.payloads.settings import PayloadSettings
from django_ojs.hooks import registry
from django_ojs.not_installed import SETTINGS
from django_ojs.spec.retry_policy import DEFAULT, RetryPolicy
from tests.cases import together

NEITHER = [None, "hunter2", b"hunter2", object(), {}, [], float("nan"), float("inf"), 10**400, -1]
ZEROS: list[Any] = [0, timedelta(0), "PT0S"]
NO_DURATIONS = [*NEITHER, True, timedelta(seconds=-1), "5 minutes"]
COUNTS = [*NEITHER, 0, True, 1.5, "5"]
BOOLEANS = [*NEITHER, 0, 1, "yes"]
PATHS = [None, "a.path", 4711, [4711], [None], {"a.path": 1, 2: 3}, True]
RETRIES: list[Any] = [
    None,
    "hunter2",
    5,
    [],
    {"max_attempts": -1},
    {"max_attempts": "5"},
    {"initial_interval": "soon"},
    {"max_interval": timedelta(0)},
    {"on_exhaustion": "explode"},
]

OFFLOADS: list[dict[str, Any]] = [
    {"bucket": 5},
    {"bucket": "a/b"},
    {"prefix": ""},
    {"prefix": "a"},
    {"prefix": "../a/"},
    {"over": 0},
    {"over": True},
    {"over": "5"},
    {"sweep_after": "PT59M"},
    {"sweep_after": None},
    {"keep": 5},
]

POOLS: list[Any] = [
    *(None, [], "payments", {}, {"queues": []}, {"queues": "payments"}, {"queues": {}}),
    *({"queues": ["Bad Name"]}, {"queues": [None]}, {"queues": ["a", "a"]}, {"queues": [{}]}),
    *({"queues": {"a": weight}} for weight in (0, -1, 1.5, True, "5", 1001, None)),
    *({"queues": ["a"], "strategy": name} for name in ("fair", "least-loaded", 5, "weighted")),
    {"queues": {"a": 2}, "strategy": "round-robin"},
    {"queues": ["a"], "weights": {"b": 2}},
    {"queues": ["a"], "weights": [2]},
    {"queues": {"a": 1}, "weights": {"a": 1}},
    {"queues": ["a"], "concurrency": 10},
    *({"queues": ["a"], "exclusive": value} for value in (None, 1, "yes")),
    {"queues": ["a", "*"], "exclusive": True},
    {"queues": ["a"], "exclusiv": True},
    *(
        {"queues": ["a", "b"], "starvation_prevention": value}
        for value in (
            *(None, 1, "on", {"enabled": 1}, {"interval": 5}, {"rotation_interval": "soon"}),
            *({"rotation_interval": 0}, {"rotation_interval": -1}),
            *({"min_dispatch_ratio": ratio} for ratio in (-0.1, 0.51, 2, "0.1", True, None)),
        )
    ),
]

#: Values that each key rejects, by what its own default is.
BAD: dict[str, list[Any]] = {
    # 0: never.
    "STALL_TIMEOUT": NO_DURATIONS,
    "WARN_FAILURE_RATE": [*NEITHER, 0, 1.5, True, "0.5"],
    "KEEP_EVENTS": [None, "*", "job.*", True, [4711], ["job"], ["*", "job.exploded"], ["Job.*"]],
    "RELEASE": [None, "x" * 65, "a\nb", 7, ["1.0"]],
    "SERVICE_NAME": [None, "", "a b", "a/b", "x" * 64, 4711, ["shop"]],
    "OPENTELEMETRY": [None, 1, "on"],
    "QUEUES": [
        None,
        [],
        "email",
        {"Bad Name": {}},
        {"email": None},
        {"email": {"backpressure": {"max_depth": -1}}},
        {"email": {"backpressure": {"strategy": "shrug"}}},
    ],
    "POOLS": [
        *(
            None,
            [],
            "critical",
            4711,
            True,
            {"hunter two": {"queues": ["a"]}},
            {7: {"queues": "a"}},
        ),
        *({"critical": bad} for bad in POOLS),
        {"a": {"queues": ["x"], "exclusive": True}, "b": {"queues": ["x"]}},
        {"b": {"queues": {"y": 1, "x": 1}}, "a": {"queues": ["x"], "exclusive": True}},
        {name: {"queues": ["x"], "exclusive": True} for name in "ab"},
    ],
    "HTTP_RATE_LIMIT": [
        600,
        True,
        [],
        "600",
        "600/week",
        "0/min",
        "-1/min",
        "600/min ",
        "",
        "a/min",
    ],
    "HTTP_RATE_LIMIT_CACHE": [None, "", "unknown", 4711, True, [], {}],
    "WRONG_DATABASE": [None, "ignore", True, [], 4711],
    "PAYLOAD_HTTPS_HOSTS": [*PATHS, ["https://a"], ["a/b"], ["a b"], ["*"], [""], ["a:b"]],
    "PAYLOAD_S3_BUCKETS": [*PATHS, ["s3://bucket"], ["B"], ["/a"], ["*"]],
    "PAYLOAD_FILE_ROOTS": [*PATHS, ["media"], ["/a/../b"], [""]],
    "PAYLOAD_PRIVATE_NETWORKS": [*PATHS, ["10.0.0.1/8"], ["everything"]],
    "PAYLOAD_S3": [None, [], "s3", {"endpoint": "x"}, {"region_name": 5}, {"verify": "no"}],
    "PAYLOAD_CA_FILE": ["ca.pem", 4711, True, [], b"/ca.pem"],
    "OFFLOAD": [
        *("s3", [], 4711, True, {}, {"bucket": "jobs"}, {"prefix": "a/"}),
        *({"bucket": "jobs", "prefix": "a/"} | bad for bad in OFFLOADS),
    ],
    "DEFAULT_RETRY": RETRIES,
    "MAX_QUEUE_NAME_BYTES": [*COUNTS, 256],
    "MAX_JOB_TYPE_BYTES": [*COUNTS, 256],
    "MAX_ENVELOPE_BYTES": [None, "1048576", True, 0, 2**20 - 1, 2.0**20],
}


def bad_values(key: str, default: object) -> list[Any]:
    if key in BAD:
        return BAD[key]
    if isinstance(default, timedelta):
        return [*NO_DURATIONS, *ZEROS]
    if isinstance(default, bool):
        return BOOLEANS
    if isinstance(default, int):
        # As large as it likes is a count.
        return [value for value in COUNTS if value != 10**400]
    assert isinstance(default, tuple), f"{key} is a new kind of setting: add what it rejects"
    return PATHS


KEYS = {key: each.default for key, (_, each) in conf.declared().items()}


def read(given: object) -> Settings:
    with override_settings(OJS=given):
        return settings()


@together("key", KEYS)
def test_a_bad_value_is_an_error_that_names_the_key_and_no_value(key: str) -> None:
    for value in bad_values(key, KEYS[key]):
        with pytest.raises(ImproperlyConfigured) as caught:
            read({key: value})
        said = str(caught.value)
        # A dictionary is what it must be, and something in it is wrong.
        verdict = "(must be|is invalid:)" if isinstance(value, dict) else "must be"
        assert re.match(rf"OJS\['{key}'\] {verdict} ", said), value
        assert "hunter2" not in said


def test_a_worker_that_is_never_stalled() -> None:
    for value in ZEROS:
        assert read({"STALL_TIMEOUT": value}).stall_timeout == timedelta(0)


@together("key", KEYS)
def test_the_default_of_a_key_is_a_value_that_it_takes(key: str) -> None:
    assert read({key: KEYS[key]}) == read({}) == Settings()


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("DEFAULT_TIMEOT", "DEFAULT_TIMEOUT"),
        ("ENQUEUE_MIDDLEWARES", "ENQUEUE_MIDDLEWARE"),
        ("default_retry", "DEFAULT_RETRY"),
        ("KEEP_COMPLETE", "KEEP_COMPLETED"),
    ],
)
def test_a_misspelt_key_gets_a_suggestion(key: str, near: str) -> None:
    with pytest.raises(ImproperlyConfigured) as caught:
        read({key: 1})
    assert str(caught.value) == (
        f"OJS[{key!r}] is not a setting of django_ojs. Did you mean {near}?"
    )


def test_a_setting_of_an_app_that_is_not_installed_says_the_line_to_add() -> None:
    steps = next(each for each in registry.extensions() if each.name == "steps")
    registry.remove(steps)
    try:
        with pytest.raises(ImproperlyConfigured) as caught:
            read({"MAX_STEPS": 7})
    finally:
        registry.register(steps)
    assert str(caught.value) == (
        "OJS['MAX_STEPS'] needs an extension of django_ojs. "
        'Add "django_ojs.extensions.steps" to INSTALLED_APPS, and run migrate.'
    )


def test_the_settings_of_each_app_are_known_without_it() -> None:
    found = {}
    for each in registry.extensions():
        app = type(each).__module__.removesuffix(".extension")
        if each.settings and apps.is_installed(app):
            name = app.removeprefix("django_ojs.extensions.")
            found[name] = {field.name.upper() for field in fields(each.settings)}
    assert {name: set(keys.split()) for name, keys in SETTINGS.items()} == found


@pytest.mark.parametrize("key", ["ZZZ", 4711, None, ("A", "B")])
def test_a_key_like_no_other_gets_the_list(key: object) -> None:
    with pytest.raises(ImproperlyConfigured) as caught:
        read({key: 1})
    assert str(caught.value).startswith(
        f"OJS[{key!r}] is not a setting of django_ojs. The names are"
    )
    assert all(known in str(caught.value) for known in KEYS)


@together(
    ("given", "says"),
    [
        ({"DEFAULT_RETRY": {"max_attemps": 7}}, "retry.max_attemps is not a field"),
        ({"DEFAULT_RETRY": {"max_attemps": 7}}, "Did you mean max_attempts?"),
        (
            {"QUEUES": {"email": {"backpressure": {"max_dept": 5}}}},
            "QUEUES.email.backpressure.max_dept is not a field of a queue. Did you mean max_depth?",
        ),
        ({"QUEUES": {"email": {"max_sice": 5}}}, "QUEUES.email.max_sice is not a field"),
        (
            {"QUEUES": {"email": {"tenant_limits": {"tenants": {"acme": {"depth": 5}}}}}},
            "QUEUES.email.tenant_limits.tenants.acme.depth is not a field of a queue",
        ),
        (
            {"QUEUES": {"email": {"default_retry": {"max_attemps": 5}}}},
            "QUEUES.email.default_retry.max_attemps is not a field of a retry policy",
        ),
        (
            {"QUEUES": {"email": {"dead_letter": {"retention": {"max_agee": "P1D"}}}}},
            "Did you mean max_age?",
        ),
        (
            {"QUEUES": {"Email": {}}},
            "OJS['QUEUES'] is invalid: the queue name 'Email' must consist of a-z",
        ),
        (
            {"QUEUES": {"email": {"max_size": -5}}},
            "OJS['QUEUES'] is invalid: QUEUES.email.max_size must be an integer",
        ),
        ({"QUEUES": {"email": {"rate": {}}}}, "Did you mean rate_limit?"),
    ],
)
def test_a_misspelt_name_inside_a_value_gets_a_suggestion(given: Any, says: str) -> None:
    with pytest.raises(ImproperlyConfigured) as caught:
        read(given)
    assert says in str(caught.value)
    assert str(caught.value)[-1] in ".?"
    assert str(caught.value)[-2] not in ".?"


def test_an_interval_of_the_default_policy_may_be_in_seconds() -> None:
    policy = read({"DEFAULT_RETRY": {"initial_interval": 0.5, "max_interval": 60}}).default_retry
    assert policy == RetryPolicy(initial_interval=0.5, max_interval=60)


@pytest.mark.parametrize("given", [None, [], "OJS", 4711, [("BACKTRACES", False)]])
def test_ojs_is_a_dictionary(given: object) -> None:
    with pytest.raises(ImproperlyConfigured, match="The setting OJS must be a dictionary"):
        read(given)


def test_without_the_setting_everything_has_its_default() -> None:
    with override_settings():
        if hasattr(django_settings, "OJS"):
            delattr(django_settings, "OJS")  # mypy knows no such setting
        conf.forget()
        assert settings() == Settings()
    conf.forget()


@together("value", [90, 90.0, timedelta(seconds=90), "PT1M30S", "90s", "PT1.5M", "1.5m"])
def test_a_duration_has_several_spellings(value: object) -> None:
    assert read({"GRACE_PERIOD": value}).grace_period == timedelta(seconds=90)


def test_a_retry_policy_can_be_given_as_its_fields_over_the_specification_s() -> None:
    policy = RetryPolicy(max_attempts=9, initial_interval="PT2S")
    assert read({"DEFAULT_RETRY": policy}).default_retry == policy
    given = read({"DEFAULT_RETRY": {"max_attempts": 9, "initial_interval": "PT2S"}})
    assert given.default_retry == policy
    assert read({}).default_retry == DEFAULT


@pytest.mark.parametrize("value", [["a.path", "b.path"], ("a.path", "b.path")])
def test_paths_keep_their_order(value: object) -> None:
    assert read({"ENQUEUE_MIDDLEWARE": value}).enqueue_middleware == ("a.path", "b.path")


def test_the_limits_of_an_envelope_are_the_settings() -> None:
    limits = read(
        {
            "MAX_QUEUE_NAME_BYTES": 1,
            "MAX_JOB_TYPE_BYTES": 2,
            "MAX_META_BYTES": 3,
            "MAX_ENVELOPE_BYTES": 2**20,
            "EXACT_INTEGERS": True,
        }
    ).limits
    assert (limits.queue_bytes, limits.type_bytes) == (1, 2)
    assert (limits.meta_bytes, limits.envelope_bytes) == (3, 2**20)
    assert limits.exact_integers


def test_the_settings_are_read_once_and_again_after_a_change() -> None:
    class Counted(Mapping[str, Any]):
        reads = 0

        def __getitem__(self, key: str) -> Any:
            return {"BACKTRACES": False}[key]

        def __iter__(self) -> Any:
            Counted.reads += 1
            return iter(["BACKTRACES"])

        def __len__(self) -> int:
            return 1

    before = settings()
    with override_settings(OJS=Counted()):
        assert settings() is settings()
        assert settings().backtraces is False
        assert Counted.reads == 1
        with override_settings(OJS={"BACKTRACES": True}):
            assert settings().backtraces is True
    assert settings() == before


def test_a_change_of_another_setting_leaves_them_alone() -> None:
    before = settings()
    with override_settings(LANGUAGE_CODE="de"):
        assert settings() is before


def test_nobody_changes_them_by_the_way() -> None:
    read_settings: Any = settings()
    with pytest.raises(FrozenInstanceError):
        read_settings.backtraces = False


def test_where_large_arguments_go_is_read_and_its_secrets_are_not_shown() -> None:
    given = {"bucket": "jobs", "prefix": "shop/", "sweep_after": "PT2H"}
    wanted = {
        "OFFLOAD": given,
        "PAYLOAD_S3": {"aws_secret_access_key": "hunter2"},
        "PAYLOAD_HTTPS_HOSTS": ["Files.Example.com:8443", ".example.com", "[::1]"],
    }
    with override_settings(OJS=wanted):
        found = conf.of(PayloadSettings)
    assert found.offload is not None
    assert (found.offload.root, found.offload.over) == ("s3://jobs/shop/", 262_144)
    assert found.offload.sweep_after == timedelta(hours=2)
    assert found.payload_https_hosts[0] == "files.example.com:8443"
    assert "hunter2" not in repr(found)

"""Each field of a queue's configuration has an effect, over HTTP and in Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from django_ojs.extensions.workflows.operations import advance_due
from django_ojs.operations import ack, fetch, queues
from django_ojs.operations.maintenance import job_pruning
from django_ojs.spec import queue_config
from django_ojs.spec.errors import JobTypeNotAllowed, PayloadTooLarge, QueueFull, UnsupportedFeature
from django_ojs.spec.retry_policy import RetryPolicy
from tests.cases import together
from tests.factories import HOUR, age, in_state, jobs, push
from tests.http.api import Api, make_key
from tests.operations.workflows.scenes import chain, create, job

pytestmark = pytest.mark.django_db

QUEUE = "carrier"
api = Api()

Config = dict[str, Any]


def configure(config: Config) -> None:
    api.put(f"queues/{QUEUE}/config", config).ok()


def http_push(**body: Any) -> Any:
    return api.post("jobs", {"type": "t", "args": [], "options": {"queue": QUEUE}, **body})


def rejected_as_full() -> None:
    http_push().error(429, "QUEUE_FULL")
    with pytest.raises(QueueFull):
        push(queue=QUEUE)


BOUNDS: list[Config] = [
    {"backpressure": {"max_depth": 1}},
    {"backpressure": {"max_size_bytes": 1}},
    {"max_size": 1},
    {"max_size_bytes": 1},
    {"backpressure": {"max_depth": 1, "strategy": "reject"}},
    {"max_size": 1, "overflow_policy": "reject"},
]


@pytest.mark.django_db(transaction=True)
@pytest.mark.requirement("QC-S02")
def test_a_bound_rejects_what_is_over_it() -> None:
    push(queue=QUEUE)
    for config in BOUNDS:
        configure({"backpressure": None})
        configure(config)
        rejected_as_full()


@pytest.mark.parametrize(
    "config",
    [
        {"max_size": 1, "overflow_policy": "drop_oldest"},
        {"backpressure": {"max_depth": 1, "strategy": "drop_oldest"}},
    ],
)
def test_the_oldest_job_makes_room(config: Config) -> None:
    configure(config)
    first = push(queue=QUEUE)
    http_push().ok(201)
    assert jobs().get(pk=first.pk).state == "discarded"


def test_a_threshold_warns() -> None:
    configure({"backpressure": {"max_depth": 10, "warning_threshold": 0.1}})
    push(queue=QUEUE)
    assert http_push().headers["X-OJS-Queue-Bound"] == "10"


def test_an_envelope_over_the_limit_of_its_queue_is_rejected() -> None:
    configure({"max_envelope_bytes": 300})
    http_push(args=["x" * 300]).error(413, "PAYLOAD_TOO_LARGE")
    with pytest.raises(PayloadTooLarge):
        push(queue=QUEUE, args=["x" * 300])


LIMITS: list[Config] = [
    {"concurrency": 1},
    {"rate_limit": {"concurrency": 1}},
    {"rate_limit": {"max_per_second": 1}},
    {"rate_limit": {"limit": 1, "period": "PT1H"}},
    {"rate_limit": {"rate": {"limit": 1, "period": "PT1H"}}},
    {"rate_limit": {"throttle": {"limit": 1, "period": "PT1H"}}},
    {"rate_limit": {"limit": 1, "period": "PT1H", "on_limit": "wait"}},
]


@pytest.mark.requirement("QC-03")
@together("config", LIMITS, ids=str, undo=True)
def test_a_limit_holds_jobs_back(config: Config) -> None:
    configure(config)
    push(queue=QUEUE)
    push(queue=QUEUE)
    assert len(api.post("workers/fetch", {"queues": [QUEUE], "count": 5}).ok()["jobs"]) == 1
    assert fetch.fetch([QUEUE], count=5) == []


DEFAULTS: list[tuple[Config, str, Any]] = [
    ({"default_timeout": 30}, "timeout", 30),
    ({"visibility_timeout": 60}, "visibility_timeout_ms", 60_000),
    ({"default_retry": {"max_attempts": 7}}, "max_attempts", 7),
]


@pytest.mark.parametrize(("config", "name", "value"), DEFAULTS, ids=lambda each: str(each))
@pytest.mark.requirement("QC-06", "QC-07")
def test_a_default_is_that_of_jobs_without_a_value_of_their_own(
    config: Config, name: str, value: Any
) -> None:
    earlier = push(queue=QUEUE)
    configure(config)
    by_request = http_push().ok(201)["job"]["id"]
    in_python = push(queue=QUEUE)
    create(chain(job("t", queue=QUEUE), job("t", queue=QUEUE)))
    ack.ack(fetch.fetch([QUEUE], count=9)[-1].id)
    advance_due()
    own = http_push(options={"queue": QUEUE, **OWN}).ok(201)["job"]["id"]
    shown = {each.pk: api.info(str(each.pk)) for each in jobs()}
    # The jobs that were there before keep what they had; what a job says itself is kept.
    assert shown.pop(earlier.pk).get(name) != value
    assert api.info(own).get(name) != value
    others = [each for each in shown.values() if each["id"] != own]
    assert {str(in_python.pk), by_request} < {each["id"] for each in others}
    assert [each.get(name) for each in others] == [value] * 4


OWN: Config = {"timeout": 5, "visibility_timeout": 5, "retry": {"max_attempts": 2}}


def prune() -> None:
    """Prune until nothing is left to do."""
    while job_pruning.prune():
        pass
    pruner = job_pruning.QueuePruner()
    while pruner.prune():
        pass


NO_DEAD_LETTER = RetryPolicy(max_attempts=1, on_exhaustion="discard")


@pytest.mark.parametrize("state", ["completed", "cancelled", "discarded"])
@pytest.mark.requirement("QC-08", "QC-03")
def test_a_retention_deletes_jobs_that_ended_before_it(state: str) -> None:
    configure({"retention": {state: "PT1H"}})
    old, recent = (in_state(state, queue=QUEUE, retry=NO_DEAD_LETTER) for _ in range(2))
    age(old.pk, 2 * HOUR)
    prune()
    assert list(jobs().values_list("pk", flat=True)) == [recent.pk]


@pytest.mark.requirement("QC-08")
@pytest.mark.parametrize(
    "config", [{"dead_letter_ttl": "PT1H"}, {"dead_letter": {"retention": {"max_age": "PT1H"}}}]
)
def test_dead_letters_have_a_retention(config: Config) -> None:
    configure(config)
    dead = in_state("discarded", queue=QUEUE)
    age(dead.pk, 2 * HOUR)
    prune()
    assert not jobs().filter(pk=dead.pk).exists()


@pytest.mark.requirement("QC-10")
def test_a_type_that_is_not_allowed_is_rejected() -> None:
    configure({"allowed_job_types": ["report.*"]})
    http_push().error(422, "JOB_TYPE_NOT_ALLOWED")
    with pytest.raises(JobTypeNotAllowed):
        push(queue=QUEUE)


@pytest.mark.requirement("QC-11")
def test_a_producer_that_is_not_allowed_is_rejected(settings: Any) -> None:
    configure({"producers": ["nobody"]})
    settings.OJS = {}
    body = {"type": "t", "args": [], "options": {"queue": QUEUE}}
    Api(make_key("producer")).post("jobs", body).error(403, "PERMISSION_DENIED")


REJECTED: list[Config] = [
    {"rate_limit": {"on_limit": "drop"}},
    {"dead_letter_max_size": 5},
    {"dead_letter": {"retention": {"max_count": 5}}},
]


@pytest.mark.requirement("QC-12")
@pytest.mark.parametrize("config", REJECTED, ids=str)
def test_a_field_without_an_effect_is_rejected(config: Config) -> None:
    api.put(f"queues/{QUEUE}/config", config).error(422, "unsupported")
    with pytest.raises(UnsupportedFeature):
        queues.configure(QUEUE, config)


ELSEWHERE = [
    {"backpressure": {"warning_threshold": 0.1}},
    {"max_envelope_bytes": 300, "allowed_job_types": [], "producers": []},
    {"retention": dict.fromkeys(["completed", "cancelled", "discarded"])},
    {"dead_letter_queue": "dead"},
    {"dead_letter_ttl": "PT1H", "dead_letter": {"retention": {"max_age": "PT1H"}}},
    {"overflow_policy": "drop_oldest"},
    {"tenant_limits": dict.fromkeys(["max_queue_depth", "tenants"])},
    {"tenant_fairness": dict.fromkeys(["enabled", "strategy", "weights", "default_weight"])},
]


@pytest.mark.requirement("QC-12")
def test_all_fields_are_here() -> None:
    shown = [*BOUNDS, *LIMITS, *REJECTED, *ELSEWHERE, *(config for config, _, _ in DEFAULTS)]
    names = {name.removeprefix("default_retry.") for each in shown for name in leaves(each)}
    assert names - {"max_attempts"} == leaves(queue_config._known.checks) - {"default_retry"}


def leaves(fields: Mapping[str, Any], path: str = "") -> set[str]:
    """Return the paths of the fields of an object that are no objects."""
    found: set[str] = set()
    for name, each in fields.items():
        inner = getattr(each, "members", None) or each
        found |= leaves(inner, f"{path}{name}.") if isinstance(inner, Mapping) else {path + name}
    return found

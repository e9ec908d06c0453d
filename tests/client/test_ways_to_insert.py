"""Whatever jobs are stored together, and by whichever statement: same rows, same errors.

Jobs that differ in their arguments only are one envelope until they are stored. PostgreSQL has
a statement for them, and one for a plain job alone; a mixed batch takes that for any jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import override_settings

import django_ojs as ojs
from django_ojs.extensions.backpressure import storage as bounds
from django_ojs.models import Job
from django_ojs.operations import queues
from django_ojs.storage.claimed_job import running
from django_ojs.storage.dialects import postgresql_inserts
from tests.cases import together

pytestmark = pytest.mark.django_db

TYPE = "test.short"
#: Of each job its own, or of the time of the enqueue.
OWN = {"id", "created_at", "enqueued_at"}
FIELDS = [field.attname for field in Job._meta.concrete_fields]


def ways(value: Any = "y", **options: Any) -> dict[str, Callable[[], ojs.EnqueuedJob]]:
    def batch(*others: ojs.Request) -> ojs.EnqueuedJob:
        return ojs.enqueue_batch([ojs.request(TYPE, [value], **options), *others])[0]

    return {
        "ordinary": lambda: ojs.enqueue(TYPE, [value], id=ojs.new_id(), **options),
        "mixed": lambda: batch(ojs.request("test.other", ["z"], queue="other")),
        "one": lambda: ojs.enqueue(TYPE, [value], **options),
        "alone": batch,
        "alike": lambda: batch(ojs.request(TYPE, ["z"], **options)),
    }


def outcome(enqueue: Callable[[], ojs.EnqueuedJob]) -> Any:
    try:
        result = enqueue()
    except Exception as error:
        details = dict(getattr(error, "details", {}))
        details.pop("index", None)
        return type(error).__name__, str(error), details
    stored, model = result.job(), result.model()
    for name in FIELDS:
        assert getattr(stored, name) == getattr(model, name), name
    values = {name: getattr(stored, name) for name in FIELDS if name not in OWN}
    return result.outcome, result.state, result.type, result.queue, repr(values)


def assert_same(value: Any = "y", **options: Any) -> None:
    found = {}
    for way, enqueue in ways(value, **options).items():
        Job.objects.all().delete()
        found[way] = outcome(enqueue)
    assert found == dict.fromkeys(found, found["ordinary"])


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """The calls of the statements for one job and for alike ones: which, and whether it stored."""
    made: list[tuple[str, bool]] = []
    for name in ("_insert_one", "_insert_alike"):
        original = getattr(postgresql_inserts, name)

        def noted(*args: Any, name: str = name, original: Any = original) -> Any:
            result = original(*args)
            made.append((name, bool(result)))
            return result

        monkeypatch.setattr(postgresql_inserts, name, noted)
    return made


@pytest.mark.postgresql
def test_the_ways_are_those_that_this_compares(tries: list[tuple[str, bool]]) -> None:
    taken = {}
    for way, enqueue in ways().items():
        tries.clear()
        enqueue()
        taken[way] = [name for name, _ in tries]
    one, alike = ["_insert_one"], ["_insert_alike"]
    assert taken == {"ordinary": one, "mixed": [], "one": one, "alone": alike, "alike": alike}


@pytest.mark.postgresql  # The other databases have no admission tickets.
def test_a_bounded_queue_is_not_counted_below_its_threshold(tries: list[tuple[str, bool]]) -> None:
    queues.configure("default", {"backpressure": {"max_depth": 300, "warning_threshold": 0.5}})
    bounds.renew_tickets("default")  # As the commit does.
    for depth in range(1, 11):
        ojs.enqueue(TYPE, [depth])
    ojs.enqueue_batch([ojs.request(TYPE, [number]) for number in range(10)])
    assert tries == [("_insert_one", True)] * 10 + [("_insert_alike", True)]
    # A batch beyond the threshold is counted, and so is all that follows while it is above.
    tries.clear()
    ojs.enqueue_batch([ojs.request(TYPE, [number]) for number in range(180)])
    assert tries == [("_insert_alike", False), ("_insert_alike", True)]
    assert Job.objects.count() == 200


@together("has_configs", [False, True], undo=True)
@together(
    "value",
    [
        *("", "ü", "\u2028", "a\x7f", "\x01", '"', "\\", "\\u0000", "😀", "],[", "%s %% %(a)s"),
        *("a\0b", "\ud800", {"a\0": 1}, {"\ud800": 1}, "x" * 100, "1234567890123456789"),
        *(2**53 - 1, -(2**53) + 1, 2**53, 2**63, 10**400, 1e300, 1e-300, -0.0, 0.1, 1.0, 1e16),
        *(float("nan"), float("inf"), True, None, [], {}, [[]], {"a": [1, {"b": "],["}]}),
        *((1, 2), {1: 2}, b"x", {"x"}, "x" * (1 << 20)),
    ],
    ids=lambda value: ascii(value)[:30],
    undo=True,
)
def test_an_argument_is_stored_or_rejected_alike(value: Any, has_configs: bool) -> None:
    if has_configs:
        queues.configure("other", {"default_timeout": 5})
    assert_same(value)


@together("has_configs", [False, True], undo=True)
@together(
    "options",
    [
        *({"priority": value} for value in (5, True, 1.0, 101, "1")),
        *({"queue": value} for value in ("q1", "Q", "", 5, ["q"], None)),
        *({"timeout": 3}, {"timeout": 0.0001}, {"visibility_timeout": 3}, {"pending": True}),
        *({"meta": value} for value in ({}, {"a": "ü"}, {"a": float("nan")}, {"tenant_id": 5}, 1)),
        *({"tags": value} for value in ([], ["x"], ["x\0"])),
        *({"retry": {"max_attempts": value}} for value in (7, 0, -1)),
        {"retry": {"max_attempts": 7, "on_exhaustion": "discard"}},
        {"schema": "urn:x"},
    ],
    ids=repr,
    undo=True,
)
def test_an_option_is_stored_or_rejected_alike(options: dict[str, Any], has_configs: bool) -> None:
    if has_configs:
        queues.configure("other", {"default_timeout": 5})
    assert_same(**options)


@together("meta", [None, {"tenant_id": "acme"}, {"tenant_id": 5}], ids=repr, undo=True)
@together(
    "config",
    [
        {"default_timeout": 90},
        {"default_retry": {"max_attempts": 9}},
        {"allowed_job_types": ["test.other"]},
        {"allowed_job_types": [TYPE]},
        {"backpressure": {"max_depth": 5}},
        {"tenant_limits": {"max_queue_depth": 5}},
        {"max_envelope_bytes": 5},
        {"rate_limit": {"limit": 1, "period": "PT10S"}},
    ],
    ids=repr,
    undo=True,
)
def test_a_queue_s_configuration_applies_alike(
    config: dict[str, Any], meta: dict[str, Any] | None
) -> None:
    queues.configure("qq", config)
    assert_same(queue="qq", meta=meta)


def test_a_paused_or_draining_queue_the_settings_and_a_running_parent_apply_alike() -> None:
    for change in (ojs.pause_queue, ojs.drain_queue, ojs.resume_queue):
        change("qq")
        assert_same(queue="qq")
    for values in ({"DEFAULT_RETRY": {"max_attempts": 3}}, {"EXACT_INTEGERS": True}):
        with override_settings(OJS=values):
            for value in ("y", 2**60, 2**64):
                assert_same(value)
    token = running.set(ojs.enqueue("test.parent").job())
    try:
        assert_same()
    finally:
        running.reset(token)


@pytest.mark.parametrize("character", ["x", "ü", "\x01"])
def test_an_envelope_is_as_large_as_its_queue_allows_alike(character: str) -> None:
    queues.configure("small", {"max_envelope_bytes": 100})
    for length in range(0, 100, 3 if character == "x" else 7):
        assert_same(character * length, queue="small")

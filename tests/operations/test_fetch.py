"""FETCH, ojs-core §7.2, one MUST after the other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db.models import F
from django.db.models.functions import Now

from django_ojs.extensions.limits.models import HELD, LimitCheck
from django_ojs.models.worker import Directive
from django_ojs.operations import ack, beat, fail, fetch, queues
from django_ojs.operations.workers import rescue
from django_ojs.spec import envelope as rendering
from django_ojs.spec import json
from django_ojs.spec.errors import InvalidQueue, InvalidRequest, QueueNameTooLong
from django_ojs.spec.isolation import ISOLATED_AFTER
from django_ojs.storage import database, transitions
from django_ojs.storage.claimed_job import Claimed, texts_of
from django_ojs.storage.dialects.rows import ClaimRequest
from tests.cases import together
from tests.factories import (
    BOOM,
    HOUR,
    WORKER,
    WorkerFactory,
    active,
    age,
    held,
    hourly,
    in_state,
    jobs,
    push,
    push_many,
    read,
)
from tests.model_factories import LimitCheckFactory

pytestmark = pytest.mark.django_db


def fetched(*names: str, **values: Any) -> list[Any]:
    return [job.args[0] for job in fetch.fetch(names, **{"count": 100, **values})]


def put(*args: Any, **values: Any) -> None:
    push(args=list(args), **values)


@pytest.mark.requirement("CORE-7.2-3", "FS-002")
def test_must_1_queues_are_searched_from_left_to_right_whatever_the_priorities() -> None:
    put("low", queue="a", priority=-100)
    put("high", queue="b", priority=100)
    assert fetched("a", "b") == ["low", "high"]


def test_must_1_inside_a_queue_the_highest_priority_comes_first_then_the_first_to_come() -> None:
    for name, priority in [("3", 0), ("5", -100), ("1", 100), ("4", 0), ("2", 1)]:
        put(name, queue="a", priority=priority)
    assert fetched("a") == ["1", "2", "3", "4", "5"]


@pytest.mark.requirement("CORE-5.2-8", "CORE-5.2-9", "CORE-7.2-2")
def test_must_1_of_more_jobs_than_are_wanted_the_best_are_claimed() -> None:
    put("4", queue="a")
    age(push(args=["3"], queue="a").pk, HOUR)
    put("1", queue="a", priority=100)
    put("2", queue="a", priority=1)
    assert [fetched("a", count=1) for _ in range(4)] == [["1"], ["2"], ["3"], ["4"]]


@pytest.mark.requirement("CORE-7.2-3")
def test_must_1_the_queue_on_the_right_is_asked_only_for_what_is_still_wanted() -> None:
    for queue in "ab":
        for n in range(3):
            put(f"{queue}{n}", queue=queue)
    assert fetched("b", "a", count=4) == ["b0", "b1", "b2", "a0"]
    assert fetched("b", "a", count=1) == ["a1"]


def test_a_queue_that_is_named_twice_is_asked_once() -> None:
    put("only", queue="a")
    assert fetched("a", "a") == ["only"]


def test_only_the_named_queues_are_asked() -> None:
    put("elsewhere", queue="b")
    assert fetched("a") == []


def test_jobs_come_in_the_order_in_which_they_became_available_not_were_created() -> None:
    waiting = push(queue="a", args=["was scheduled"], scheduled_at=HOUR)
    put("came later", queue="a")
    age(waiting.pk, 2 * HOUR)
    assert fetched("a") == ["came later", "was scheduled"]


@pytest.mark.requirement("CORE-7.2-4", "FS-001")
def test_must_2_a_fetched_job_is_active_and_not_handed_out_again() -> None:
    job = active(queue="a")
    assert read(job.id).state == "active"
    assert fetch.fetch(["a", "b", "c"], count=10) == []


@pytest.mark.requirement("CORE-5.3-6", "CORE-7.2-5", "CORE-7.2-6")
def test_must_3_started_at_is_set_and_the_attempt_counted_at_each_fetch() -> None:
    job = active(queue="a", retry=hourly(9))
    assert (job.attempt, job.run) == (1, 1)
    now = jobs().filter(pk=job.id, started_at__range=(Now() - HOUR, Now() + HOUR))
    assert now.exists()
    fail.fail(job.id, BOOM)
    age(job.id, 2 * HOUR)
    first = read(job.id).started_at
    (again,) = fetch.fetch(["a"], worker_id="worker-b")
    assert (again.attempt, again.run, again.worker_id) == (2, 2, "worker-b")
    assert first is not None
    assert again.started_at is not None
    assert again.started_at > first


@pytest.mark.parametrize(
    ("own", "asked", "expected"),
    [
        (None, None, timedelta(minutes=30)),
        (120_000, None, timedelta(minutes=2)),
        (None, timedelta(seconds=7), timedelta(seconds=7)),
        (120_000, timedelta(seconds=7), timedelta(seconds=7)),
    ],
)
def test_should_4_the_claim_is_reserved_for_the_asked_its_own_or_the_default_time(
    own: int | None, asked: timedelta | None, expected: timedelta
) -> None:
    push(queue="a", visibility_timeout_ms=own)
    (job,) = fetch.fetch(["a"], visibility_timeout=asked)
    assert job.lease_until is not None
    assert job.started_at is not None
    assert abs(job.lease_until - job.started_at - expected) < timedelta(seconds=1)


def test_a_worker_of_the_project_reserves_a_job_for_no_less_than_it_can_keep() -> None:
    WorkerFactory(id="w", interval=timedelta(seconds=5))
    for own, given in [(50, 2_000), (3_000, 3_000)]:
        push(queue="a", visibility_timeout_ms=own)
        (job,) = fetch.fetch(["a"], worker_id="w", registered=True)
        assert job.lease == timedelta(milliseconds=given)
        assert jobs().get(pk=job.id).lease_ms == given


@pytest.mark.requirement("CORE-7.2-7")
def test_must_6_the_whole_envelope_is_returned_as_it_is_stored() -> None:
    push(queue="a", args=[1, "ż", {"k": [None]}], meta={"m": 1}, tags=["t"], retry=hourly(4))
    (job,) = fetch.fetch(["a"], worker_id=WORKER)
    stored = read(job.id)
    assert job.envelope() == stored.envelope()
    assert job.envelope()["state"] == "active"
    for name in ("id", "priority", "options", "meta", "tags", "retry_policy", "run", "error"):
        assert getattr(job, name) == getattr(stored, name), name
    for name in ("created_at", "enqueued_at", "started_at", "lease_until", "worker_id"):
        assert getattr(job, name) == getattr(stored, name), name


def test_the_error_of_the_attempt_before_travels_with_the_job() -> None:
    job = in_state("retryable", queue="a", retry=hourly())
    age(job.pk, 2 * HOUR)
    (again,) = fetch.fetch(["a"])
    assert again.error == {"type": "Boom", "message": "it broke"}
    assert "attempt 2" in repr(again)


def test_what_is_due_is_promoted_by_fetch_itself() -> None:
    for state in ("scheduled", "retryable"):
        job = in_state(state, queue="a", args=[state], retry=hourly())
        age(job.pk, 2 * HOUR)
    assert sorted(fetched("a")) == ["retryable", "scheduled"]


@pytest.mark.requirement("CORE-5.2-18")
@pytest.mark.parametrize("due", [True, False])
def test_an_expired_job_is_never_handed_out(due: bool) -> None:
    job = push(queue="a", expires_at=HOUR)
    put("fresh", queue="a", expires_at=3 * HOUR)
    age(job.pk, 2 * HOUR)
    assert fetched("a", due=due) == ["fresh"]
    # With `due=False` the worker's own maintenance discards it.
    assert read(job.pk).state == ("discarded" if due else "available")


def test_with_due_false_only_what_is_already_available_is_handed_out() -> None:
    job = in_state("scheduled", queue="a")
    age(job.pk, 2 * HOUR)
    assert fetch.fetch(["a"], due=False) == []
    assert read(job.pk).state == "scheduled"


def test_a_paused_queue_hands_out_nothing_and_the_next_one_does() -> None:
    put("a", queue="a")
    put("b", queue="b")
    queues.pause("a")
    assert fetched("a", "b") == ["b"]
    queues.resume("a")
    assert fetched("a", "b") == ["a"]


@pytest.mark.parametrize("directive", ["quiet", "terminate"])
def test_a_worker_that_was_directed_to_be_quiet_gets_nothing(directive: str) -> None:
    WorkerFactory(id="directed")
    WorkerFactory(id="other")
    beat.direct("directed", Directive(directive))
    put("job", queue="a")
    assert fetched("a", worker_id="directed") == []
    assert fetched("a", worker_id="other") == ["job"]


def test_without_a_worker_id_no_worker_holds_the_job_and_any_may_ack() -> None:
    job = active(worker_id=None)
    assert job.worker_id is None
    assert ack.ack(job.id).state == "completed"


def test_given_back_jobs_keep_their_place_and_requeued_ones_go_to_the_end() -> None:
    push_many(3, queue="a")
    first, second, third = (job.id for job in fetch.fetch(["a"], count=3, worker_id=WORKER))
    rescue.give_back([(first, 1)], worker_id=WORKER)
    age([first, second, third], 1)
    fail.requeue(second)
    rescue.give_back([(third, 1)], worker_id=WORKER)
    assert [job.id for job in fetch.fetch(["a"], count=3)] == [first, third, second]


def test_a_queue_that_cannot_be_claimed_from_keeps_no_job_of_another(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    put("first", queue="a")
    put("second", queue="b")
    real = transitions.claim

    def claim(request: ClaimRequest) -> list[Claimed]:
        if request.queue == "b":
            raise LookupError("a hook broke")
        return real(request)

    monkeypatch.setattr(transitions, "claim", claim)
    # In a transaction, the caller could not commit what was claimed before such an error.
    monkeypatch.setattr(database.connection(), "in_atomic_block", False)
    assert fetched("a", "b") == ["first"]
    assert "could not be claimed" in caplog.text
    with pytest.raises(LookupError):
        fetched("a", "b")
    monkeypatch.setattr(database.connection(), "in_atomic_block", True)
    put("third", queue="a")
    with pytest.raises(LookupError):
        fetched("a", "b")


def test_count_is_a_bound_and_not_a_wish() -> None:
    push_many(12, queue="a")
    assert [len(fetch.fetch(["a"], count=5)) for _ in range(4)] == [5, 5, 2, 0]
    assert jobs().filter(state="active").exclude(attempt=F("run")).count() == 0


@pytest.mark.requirement("CORE-7.2-1")
@together(
    ("arguments", "error", "message"),
    [
        ({"queues": []}, InvalidRequest, "queues must be a list of at least one"),
        ({"queues": "default"}, InvalidRequest, "queues must be a list of at least one"),
        ({"queues": ["No"]}, InvalidQueue, "queues must consist"),
        ({"queues": ["ok", 3]}, InvalidQueue, "queues must"),
        ({"queues": ["q" * 256]}, QueueNameTooLong, "at most 255 bytes"),
        ({"count": 0}, InvalidRequest, "count must be an integer from 1 to 1000"),
        ({"count": 1_001}, InvalidRequest, "count must be"),
        ({"count": True}, InvalidRequest, "count must be"),
        ({"count": 2.0}, InvalidRequest, "count must be"),
        ({"worker_id": ""}, InvalidRequest, "worker_id must be"),
        ({"worker_id": "w" * 256}, InvalidRequest, "worker_id must be"),
        ({"worker_id": "a\0b"}, InvalidRequest, "worker_id must be"),
        ({"worker_id": 7}, InvalidRequest, "worker_id must be"),
        ({"visibility_timeout": timedelta(0)}, InvalidRequest, "visibility_timeout_ms must be"),
        ({"visibility_timeout": -HOUR}, InvalidRequest, "visibility_timeout_ms must be"),
    ],
    ids=str,
    undo=True,
)
def test_what_cannot_be_fetched_is_rejected_by_name(
    arguments: dict[str, Any], error: type[InvalidRequest], message: str
) -> None:
    with pytest.raises(error, match=message):
        fetch.fetch(**({"queues": ["default"]} | arguments))


#: What the text of a job in a response is made of, besides its own arguments, metadata and times.
SHAPES: list[dict[str, Any]] = [
    {},
    {"priority": 5},
    {"type": "other.type", "timeout_ms": 2_500},
    {"retry": hourly(), "tags": ["100%", "%s"]},
    {"extra": {"note": 'a "quoted" word, é'}},
    {"expires_at": datetime(2100, 1, 1, tzinfo=UTC)},
    {"visibility_timeout_ms": 5_000, "schema": "urn:x"},
]
VALUES: list[Any] = [
    1, "x", "a, b: c", 'say "hi"', "back\\slash", "line\nbreak", "é😀", 1.5, 1e300, -0.0, 2**53 - 1,
    [], {}, {"b": 1, "a": {"c": [None, True]}}, "%s %d", "\u2028", 1e-7, 10**15,
]  # fmt: skip


def test_the_texts_of_claimed_jobs_are_those_of_their_objects() -> None:
    for number, value in enumerate(VALUES * 2):
        meta = {"trace": str(number), "value": value} if number % 3 else {}
        push(args=[value, number], meta=meta, queue="a", **SHAPES[number % len(SHAPES)])
    for shape in SHAPES:
        push(args=[shape.get("priority")], queue="a", **shape)
    again = active(args=["again"], queue="b", retry=hourly(max_attempts=9))
    fail.requeue(again.id, None, claim=held(again))
    claimed = fetch.fetch(["a", "b"], count=200)
    assert len(claimed) == len(VALUES) * 2 + len(SHAPES) + 1
    rendered: list[UUID] = []

    def render(job: Claimed) -> dict[str, Any]:
        rendered.append(job.id)
        return rendering.render(job)

    texts = texts_of(claimed, render)
    assert texts == [json.dumps(rendering.render(job)) for job in claimed]
    # One of those that are alike, and each that has run before. The jobs of one claim may have
    # started at two times where a test has replaced the clock of SQLite on this connection.
    shapes = {shape for job in claimed if (shape := job._shape()) is not None}
    assert len({shape[:-1] for shape in shapes}) == len(SHAPES)
    assert len(rendered) == len(set(rendered)) == len(shapes) + 1
    assert again.id in rendered


def test_integers_of_64_bits_reach_the_handler_as_they_are_where_they_are_allowed(
    settings: Any,
) -> None:
    settings.OJS = {**settings.OJS, "EXACT_INTEGERS": True}
    numbers: list[Any] = [2**53 + 1, 2**63 - 1, -(2**63) + 1, 1e300]
    for number in numbers:
        push(queue="a", args=[number], meta={"account": number})
    claimed = fetch.fetch(["a"], count=10)
    assert [job.args for job in claimed] == [[number] for number in numbers]
    assert [job.meta for job in claimed] == [{"account": number} for number in numbers]
    assert [type(job.args[0]) for job in claimed] == [int, int, int, float]
    texts = texts_of(claimed, rendering.render)
    assert [json.loads(text, exact_integers=True)["args"] for text in texts] == [  # type: ignore[call-overload,index]  # an object
        [number] for number in numbers
    ]


def test_jobs_with_more_of_their_own_are_rendered_each() -> None:
    for job in [active(args=[number], queue=name) for number, name in enumerate("abc")]:
        fail.fail(job.id, BOOM, claim=held(job))
    jobs().update(state="available", due_at=None)
    claimed = fetch.fetch(["a", "b", "c"], count=10)
    assert len(claimed) == 3
    rendered = [job.id for job in claimed]
    texts = texts_of(claimed, lambda job: {"id": str(job.id), "rendered": rendered.index(job.id)})
    assert [json.loads(text)["rendered"] for text in texts] == [0, 1, 2]  # type: ignore[call-overload,index]  # an object


class TestWhetherAFetchMayFindAJob:
    def test_a_job_of_the_queues_that_is_available_may_be_found(self) -> None:
        assert not fetch.may_find(["a", "b"])
        push(queue="c")
        for state in ("scheduled", "pending", "active", "retryable", "completed"):
            in_state(state, queue="b")
        assert not fetch.may_find(["a", "b"])
        push(queue="b")
        assert fetch.may_find(["a", "b"])
        assert fetch.may_find(["b"])
        assert not fetch.may_find(["a"])

    def test_one_that_must_run_alone_is_one_of_them(self) -> None:
        push(queue="a")
        jobs().update(lost_with_others=ISOLATED_AFTER)
        assert fetch.may_find(["a"])

    def test_one_that_is_held_is_none_until_its_key_is_to_be_checked(self) -> None:
        push(queue="a", rate_limit={"key": "k", "concurrency": 0})
        assert fetch.may_find(["a"])
        assert fetch.fetch(["a"]) == []
        assert jobs().get().hold == HELD
        LimitCheck.primary.all().delete()
        assert not fetch.may_find(["a"])
        LimitCheckFactory()
        assert fetch.may_find(["a"])

    def test_none_is_found_in_no_queue(self) -> None:
        push()
        assert not fetch.may_find([])

    def test_it_is_one_statement(self, django_assert_num_queries: Any) -> None:
        with django_assert_num_queries(1, using=database.alias()):
            fetch.may_find([f"q{number}" for number in range(20)])

"""Options: the call's go before the handler's, the handler's before the settings'."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import override_settings

import django_ojs as ojs
from django_ojs.models import Job
from django_ojs.spec import ids
from django_ojs.spec.errors import DuplicateJob, InvalidRequest, JobNotFound
from django_ojs.spec.retry_policy import DEFAULT, RetryPolicy
from django_ojs.spec.states import State
from tests.testapp.jobs import labelled

pytestmark = pytest.mark.django_db


def enqueue(type_: str = "test.options", **options: Any) -> Job:
    """Enqueue by name and read the job again."""
    job = ojs.enqueue(type_, ["x"], **options)
    assert job is not None
    return ojs.get_job(job.id)


def enqueue_labelled(**options: Any) -> Job:
    job = labelled.options(**options).enqueue("x")
    assert job is not None
    return ojs.get_job(job.id)


def test_a_job_without_options_has_the_defaults_of_the_specification() -> None:
    job = enqueue()
    assert (job.queue, job.priority, job.state) == ("default", 0, State.AVAILABLE)
    assert (job.timeout_ms, job.visibility_timeout_ms) == (None, None)
    assert (job.meta, job.tags, job.options) == ({}, [], {})
    assert (job.due_at, job.expires_at) == (None, None)
    assert job.retry_policy == DEFAULT


def test_a_handler_s_options_are_the_defaults_of_its_jobs() -> None:
    job = enqueue_labelled()
    assert (job.queue, job.priority) == ("labels", ojs.HIGH)
    assert (job.timeout_ms, job.visibility_timeout_ms) == (30_000, 60_000)
    assert (job.tags, job.meta) == (["default"], {"team": "growth", "tier": 1})
    assert (job.max_attempts, job.retry_policy.max_attempts) == (7, 7)


def test_the_defaults_of_a_handler_hold_for_jobs_enqueued_by_name() -> None:
    by_name, by_handler = enqueue("testapp.labelled"), enqueue_labelled()
    for field in ("queue", "priority", "timeout_ms", "visibility_timeout_ms", "meta", "options"):
        assert getattr(by_name, field) == getattr(by_handler, field)


@pytest.mark.parametrize("way", ["handler", "name", "request"])
def test_an_option_of_the_call_goes_before_the_handler_s(way: str) -> None:
    options: dict[str, Any] = {
        "queue": "other",
        "priority": ojs.LOW,
        "timeout": timedelta(seconds=1.5),
        "visibility_timeout": 2.0004,
        "tags": ("a", "b"),
        "retry": {"max_attempts": 2},
    }
    if way == "handler":
        job = enqueue_labelled(**options)
    elif way == "name":
        job = enqueue("testapp.labelled", **options)
    else:
        (made,) = ojs.enqueue_batch([labelled.options(**options).request("x")])
        assert made is not None
        job = ojs.get_job(made.id)
    assert (job.queue, job.priority, job.tags) == ("other", -10, ["a", "b"])
    assert (job.timeout_ms, job.visibility_timeout_ms) == (1500, 2000)
    assert job.max_attempts == 2


def test_a_falsy_option_of_the_call_is_an_option() -> None:
    job = enqueue_labelled(priority=0, tags=[], pending=False)
    assert (job.priority, job.tags, job.state) == (0, [], State.AVAILABLE)


def test_none_leaves_an_option_to_the_handler() -> None:
    job = enqueue_labelled(queue=None, priority=None, tags=None, meta=None, retry=None)
    assert (job.queue, job.priority, job.tags) == ("labels", ojs.HIGH, ["default"])
    assert (job.meta, job.max_attempts) == ({"team": "growth", "tier": 1}, 7)


def test_meta_is_merged_key_by_key_and_the_call_wins() -> None:
    job = enqueue_labelled(meta={"tier": 2, "order": [4711]})
    assert job.meta == {"team": "growth", "tier": 2, "order": [4711]}


def test_merging_changes_neither_the_handler_s_defaults_nor_what_the_caller_holds() -> None:
    given = {"tier": 2}
    enqueue_labelled(meta=given, tags=["mine"])
    assert given == {"tier": 2}
    job = enqueue_labelled()
    assert (job.meta, job.tags) == ({"team": "growth", "tier": 1}, ["default"])


def test_an_enqueuer_can_be_kept_and_used_again() -> None:
    urgent = labelled.options(priority=99)
    first, second = urgent.enqueue("a"), urgent.enqueue("b")
    assert [job.job().priority for job in (first, second)] == [99, 99]
    assert first.id != second.id


def test_a_retry_policy_is_completed_by_the_setting() -> None:
    with override_settings(OJS={"DEFAULT_RETRY": {"max_attempts": 9, "jitter": False}}):
        assert enqueue().retry_policy == RetryPolicy(max_attempts=9, jitter=False)
        job = enqueue(retry={"initial_interval": "PT2S"})
        assert job.retry_policy == RetryPolicy(max_attempts=9, jitter=False, initial_interval=2)
        complete = RetryPolicy(max_attempts=1)
        assert enqueue(retry=complete).retry_policy == complete
        assert enqueue("testapp.labelled").max_attempts == 7


@pytest.mark.parametrize("seconds", [90, 90.0, timedelta(seconds=90), "90s"])
def test_durations_of_a_mapping_are_in_seconds_as_those_of_a_policy(seconds: Any) -> None:
    job = ojs.enqueue(
        "test.options",
        retry={"initial_interval": seconds, "max_interval": seconds},
        unique={"period": seconds},
    )
    options = job.job().envelope()
    assert options["retry"]["initial_interval"] == options["retry"]["max_interval"] == "PT1M30S"
    assert options["unique"]["period"] == "PT1M30S"


def test_a_moment_as_a_number_is_an_error_that_names_timedelta() -> None:
    later: Any = 60
    with pytest.raises(InvalidRequest, match="a timedelta from now"):
        ojs.enqueue("test.options", scheduled_at=later)


def test_a_retry_mapping_changes_the_handler_s_policy_where_it_says_so() -> None:
    policy = enqueue_labelled(retry={"initial_interval": "PT2S"}).retry_policy
    assert policy == RetryPolicy(max_attempts=7, initial_interval=2)
    with override_settings(OJS={"DEFAULT_RETRY": {"max_attempts": 9, "jitter": False}}):
        assert enqueue_labelled(retry={"initial_interval": "PT2S"}).retry_policy == policy


def test_a_retry_policy_replaces_the_handler_s() -> None:
    policy = RetryPolicy(initial_interval=2)
    assert enqueue_labelled(retry=policy).retry_policy == policy


def test_a_default_policy_is_fixed_when_the_job_is_enqueued() -> None:
    with override_settings(OJS={"DEFAULT_RETRY": {"max_attempts": 9}}):
        job = enqueue()
    assert ojs.get_job(job.pk).retry_policy.max_attempts == 9


@pytest.mark.parametrize(
    "when",
    [
        datetime(2090, 1, 31, 9, 30, tzinfo=UTC),
        "2090-01-31T09:30:00Z",
        "2090-01-31T11:30:00+02:00",
    ],
)
def test_a_job_can_be_scheduled_for_a_moment(when: Any) -> None:
    job = enqueue(scheduled_at=when, expires_at=when)
    assert job.state == State.SCHEDULED
    assert job.due_at == job.expires_at == datetime(2090, 1, 31, 9, 30, tzinfo=UTC)
    sent = when if isinstance(when, str) else "2090-01-31T09:30:00.000Z"
    envelope = job.envelope()
    assert (envelope["scheduled_at"], envelope["expires_at"]) == (sent, sent)


@pytest.mark.parametrize("when", [timedelta(minutes=5), "+PT5M", "+300s"])
def test_a_job_can_be_scheduled_from_now(when: Any) -> None:
    job = enqueue(scheduled_at=when, expires_at=when)
    assert job.state == State.SCHEDULED
    five_minutes = timedelta(minutes=5)
    for moment in (job.due_at, job.expires_at):
        assert moment is not None
        assert abs(moment - job.created_at - five_minutes) < timedelta(minutes=1)


def test_a_moment_that_has_passed_is_now() -> None:
    job = enqueue(scheduled_at=datetime(2001, 1, 1, tzinfo=UTC))
    assert job.state == State.AVAILABLE


def test_a_pending_job_waits_until_it_is_activated() -> None:
    job = enqueue(pending=True)
    assert job.state == State.PENDING
    assert ojs.activate(job.pk).state == State.AVAILABLE


def test_the_caller_s_id_is_the_job_s_and_a_second_use_is_rejected() -> None:
    first, second = ids.uuid7(), ids.uuid7()
    assert enqueue(id=first).pk == first
    assert enqueue(id=str(second)).pk == second
    with pytest.raises(DuplicateJob) as caught:
        enqueue(id=first)
    assert caught.value.details == {"existing_job_id": str(first)}
    assert Job.objects.count() == 2


def test_a_new_id_makes_an_enqueue_happen_once() -> None:
    key = ojs.new_id()
    assert ojs.new_id() != key
    assert enqueue(id=key).pk == key
    with pytest.raises(DuplicateJob):
        enqueue(id=key)


def test_a_schema_and_a_timeout_of_less_than_a_millisecond_are_kept() -> None:
    job = enqueue(schema="urn:ojs:schema:test:v1", timeout=0.0001)
    assert job.envelope()["schema"] == "urn:ojs:schema:test:v1"
    assert job.timeout_ms == 1


def test_a_job_that_does_not_exist_is_not_found() -> None:
    for look in (ojs.get_job, ojs.cancel, ojs.activate, ojs.retry):
        with pytest.raises(JobNotFound, match="no job with this id"):
            look(ids.uuid7())


@pytest.mark.parametrize("ago", [timedelta(milliseconds=1), timedelta(days=4711)])
def test_a_time_that_is_over_is_now_however_it_is_given(ago: timedelta) -> None:
    by_distance = enqueue(scheduled_at=-ago)
    # Not by so little: the clock may be set back before the next look at it.
    by_time = enqueue(scheduled_at=datetime.now(UTC) - ago - timedelta(minutes=1))
    assert by_distance.state == by_time.state == State.AVAILABLE


def test_a_number_is_the_most_attempts_and_leaves_the_rest_of_the_policy() -> None:
    assert enqueue(retry=7).retry_policy == RetryPolicy(max_attempts=7)
    made = ojs.job("test.retried", retry=RetryPolicy(max_attempts=2, initial_interval=9))(
        lambda text: None
    )
    try:
        job = ojs.get_job(made.options(retry=7).enqueue("x").id)
    finally:
        ojs.handlers.registry.remove("test.retried")
    assert job.retry_policy == RetryPolicy(max_attempts=7, initial_interval=9)
    for wrong in (True, -1, 1.5, "3"):
        with pytest.raises(InvalidRequest, match=r"^retry"):
            enqueue(retry=wrong)

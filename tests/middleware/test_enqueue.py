"""Enqueue middleware: pass on, drop or raise; what it changes is stored and checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from django.test import override_settings

import django_ojs as ojs
from django_ojs.middleware import EnqueueNext, enqueue_chain
from django_ojs.models import Job
from django_ojs.spec import ids
from django_ojs.spec.envelope import Envelope
from django_ojs.spec.errors import DuplicateJob, OJSError
from tests.cases import together
from tests.middleware.samples import First, Note, Second, Third
from tests.testapp.models import Thing

pytestmark = pytest.mark.django_db

HERE = "tests.middleware.samples"


@contextmanager
def chain(*middleware: Any) -> Iterator[None]:
    """Let these stand before every enqueue."""
    with override_settings(OJS={}):
        for each in middleware:
            enqueue_chain().add(each)
        yield


def changing(change: Callable[[Envelope], object]) -> Any:
    def middleware(envelope: Envelope, proceed: EnqueueNext) -> Envelope | None:
        change(envelope)
        return proceed(envelope)

    return middleware


def drop(envelope: Envelope, proceed: EnqueueNext) -> Envelope | None:
    return None


def drop_odd(envelope: Envelope, proceed: EnqueueNext) -> Envelope | None:
    return proceed(envelope) if envelope.args == [] or envelope.args[0] % 2 == 0 else None  # type: ignore[operator]  # numbers in these tests


def never(envelope: Envelope, proceed: EnqueueNext) -> Envelope | None:
    raise AssertionError("This middleware comes after one that ended the chain.")


def test_middleware_runs_in_order_and_each_sees_what_the_one_before_changed() -> None:
    Note.back.clear()
    with chain(First, Second, Third):
        job = ojs.enqueue("test.middleware")
    assert job.job().meta == job.model().meta == {"seen": ["first", "second", "third"]}
    assert Note.back == ["third", "second", "first"]


def test_middleware_of_the_settings_runs_for_single_jobs_and_batches() -> None:
    with override_settings(OJS={"ENQUEUE_MIDDLEWARE": [f"{HERE}.First", f"{HERE}.Second"]}):
        single = ojs.enqueue("test.middleware")
        batch = ojs.enqueue_batch([ojs.request("test.middleware") for _ in range(3)])
    assert [job.job().meta for job in [single, *batch]] == [{"seen": ["first", "second"]}] * 4


def test_the_whole_job_is_there_to_be_looked_at() -> None:
    seen: list[Envelope] = []
    key = ids.uuid7()
    with chain(changing(seen.append)):
        ojs.enqueue(
            "test.middleware", ["x"], id=key, queue="q", priority=1, timeout=2, tags=["t"],
            meta={"m": 1}, retry={"max_attempts": 4}, scheduled_at="+PT1H", expires_at="+PT2H",
        )  # fmt: skip
    (envelope,) = seen
    assert (envelope.id, envelope.type, envelope.args) == (key, "test.middleware", ["x"])
    assert (envelope.queue, envelope.priority, envelope.timeout_ms) == ("q", 1, 2000)
    assert (envelope.tags, envelope.meta) == (["t"], {"m": 1})
    assert envelope.retry is not None
    assert envelope.retry.max_attempts == 4
    assert envelope.scheduled_at == timedelta(hours=1)
    assert envelope.expires_at == timedelta(hours=2)


def test_whatever_a_middleware_changes_is_stored() -> None:
    def rewrite(envelope: Envelope) -> None:
        envelope.type = "test.rewritten"
        envelope.args = [*envelope.args, "more"]
        envelope.queue = "routed"
        envelope.priority = 9
        envelope.timeout_ms = 1500
        envelope.tags.append("seen")
        envelope.retry = ojs.RetryPolicy(max_attempts=8)

    with chain(changing(rewrite)):
        made = ojs.enqueue("test.middleware", ["x"])
    job = made.job()
    assert (job.type, job.args, job.queue) == ("test.rewritten", ["x", "more"], "routed")
    assert (job.priority, job.timeout_ms, job.tags) == (9, 1500, ["seen"])
    assert job.max_attempts == 8


def test_a_new_envelope_may_be_passed_on_in_place_of_the_old() -> None:
    def replace(envelope: Envelope, proceed: EnqueueNext) -> Envelope | None:
        return proceed(Envelope(id=envelope.id, type="test.replaced", args=[1]))

    with chain(replace, Second):
        job = ojs.enqueue("test.middleware", ["x"], queue="q").job()
    assert (job.type, job.args, job.queue) == ("test.replaced", [1], "default")
    assert job.meta == {"seen": ["second"]}


@together("sent", [None, "2090-01-01T00:00:00+01:00", "+PT1H"], undo=True)
@together("new", [datetime(2091, 1, 1, tzinfo=UTC), timedelta(days=1), None], undo=True)
def test_a_job_shows_the_time_that_a_middleware_set(
    sent: str | None, new: datetime | timedelta | None
) -> None:
    def delay(envelope: Envelope) -> None:
        envelope.scheduled_at = envelope.expires_at = new

    with chain(changing(delay)):
        made = ojs.enqueue("test.middleware", scheduled_at=sent, expires_at=sent)
    job = made.job()
    assert made.model().envelope() == job.envelope()
    shown = [job.envelope().get(name) for name in ("scheduled_at", "expires_at")]
    if new is None:
        assert (job.due_at, job.expires_at, shown) == (None, None, [None, None])
    elif isinstance(new, datetime):
        assert (job.due_at, job.expires_at) == (new, new)
        assert shown == ["2091-01-01T00:00:00.000Z"] * 2
    else:
        assert job.due_at is not None
        assert job.due_at - job.created_at > timedelta(hours=23)
        assert str(shown[0]).startswith(f"{job.due_at:%Y-%m-%dT%H:%M}")


def test_a_dropped_job_says_so_and_no_later_middleware_runs() -> None:
    with chain(First, drop, never):
        assert ojs.enqueue("test.middleware").outcome == "dropped"
        both = ojs.enqueue_batch([ojs.request("test.middleware")] * 2)
    assert [job.outcome for job in both] == ["dropped", "dropped"]
    assert Job.objects.count() == 0


def test_a_middleware_that_passes_on_and_returns_nothing_has_dropped_the_job() -> None:
    def forgetful(envelope: Envelope, proceed: EnqueueNext) -> Envelope | None:
        proceed(envelope)
        return None

    with chain(forgetful, Second):
        assert ojs.enqueue("test.middleware").outcome == "dropped"
    assert Job.objects.count() == 0


def test_what_was_dropped_further_in_cannot_be_taken_back() -> None:
    def insist(envelope: Envelope, proceed: EnqueueNext) -> Envelope | None:
        assert proceed(envelope) is None
        return envelope

    with chain(insist, drop):
        assert ojs.enqueue("test.middleware").outcome == "dropped"
    assert Job.objects.count() == 0


def test_returning_the_envelope_passes_it_on_too() -> None:
    def plain(envelope: Envelope, proceed: EnqueueNext) -> Envelope | None:
        envelope.priority = 7
        return envelope

    with chain(plain, Second):
        job = ojs.enqueue("test.middleware").job()
    assert (job.priority, job.meta) == (7, {"seen": ["second"]})


def test_of_a_batch_only_the_dropped_ones_are_missing() -> None:
    with chain(drop_odd):
        jobs = ojs.enqueue_batch([ojs.request("test.middleware", [n]) for n in range(5)])
    outcomes = ["stored", "dropped", "stored", "dropped", "stored"]
    assert [job.outcome for job in jobs] == outcomes
    assert [job.job().args for job in jobs[::2]] == [[0], [2], [4]]
    assert Job.objects.count() == 3


def test_the_index_of_a_duplicate_counts_the_dropped_ones() -> None:
    taken = ids.uuid7()
    ojs.enqueue("test.first", id=taken)
    requests = [ojs.request("test.middleware", [n]) for n in (1, 3, 2)]
    with chain(drop_odd), pytest.raises(DuplicateJob) as caught:
        ojs.enqueue_batch([*requests, ojs.request("test.middleware", [4], id=taken)])
    assert caught.value.details["index"] == 3
    assert Job.objects.count() == 1


@pytest.mark.parametrize("error", [ValueError("no"), OJSError("no")])
def test_an_error_reaches_the_caller_and_nothing_is_stored(error: Exception) -> None:
    def reject(envelope: Envelope) -> None:
        if envelope.type == "test.rejected":
            raise error

    with chain(First, changing(reject)), transaction.atomic():
        with pytest.raises(type(error)) as single:
            ojs.enqueue("test.rejected")
        with pytest.raises(type(error)) as batch:
            ojs.enqueue_batch([ojs.request("test.fine"), ojs.request("test.rejected")])
        Thing.objects.create(name="after")
    assert single.value is batch.value is error
    assert Thing.objects.count() == 1
    assert Job.objects.count() == 0


def test_an_error_ends_the_chain() -> None:
    def reject(envelope: Envelope) -> None:
        raise ValueError("no")

    with chain(changing(reject), never), pytest.raises(ValueError, match="no"):
        ojs.enqueue("test.middleware")

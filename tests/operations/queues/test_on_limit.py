"""Jobs that a claim finds at the limit of their key: they wait, are rescheduled or dropped."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_ojs import signals
from django_ojs.extensions.events.models import Event
from django_ojs.extensions.limits import claims_by_key, limit_journal, limit_keys
from django_ojs.extensions.limits.models import LimitCheck, LimitKey
from django_ojs.extensions.statistics import rollups
from django_ojs.models import Job
from django_ojs.operations import ack, fetch, promotion, queues, retry
from django_ojs.reports.not_running import why_not_running
from django_ojs.storage import in_memory_state, queue_configs, ruled_claims
from django_ojs.storage.claimed_job import Claimed
from tests.factories import (
    HOUR,
    MINUTE,
    WORKER,
    checks_are_due,
    hourly,
    jobs,
    jobs_of_key,
    push,
    push_many,
)
from tests.http.api import Api
from tests.receivers import receiving
from tests.threads import at_once

pytestmark = pytest.mark.django_db

SECOND = timedelta(seconds=1)
HOURLY = {"rate": {"limit": 1, "period": "PT1H"}}


def add(number: int = 1, key: str = "acme", **policy: Any) -> list[Job]:
    return push_many(number, queue="carrier", rate_limit={"key": key, **policy})


def claim(count: int = 100) -> list[Claimed]:
    in_memory_state.reset()
    checks_are_due()
    return fetch.fetch(["carrier"], count=count, worker_id=WORKER)


def due() -> list[timedelta]:
    """Return in how long the scheduled jobs are due, the first one first."""
    now = timezone.now()
    times = jobs().filter(state="scheduled").order_by("due_at").values_list("due_at", flat=True)
    return [at - now for at in times if at is not None]


def time_passes(by: timedelta) -> None:
    """Make as if it were later."""
    jobs().filter(state="scheduled").update(due_at=F("due_at") - by)
    LimitCheck.primary.update(due_at=F("due_at") - by)
    for key in LimitKey.primary.all():
        for name in ("expires_at", "eased_at", "paused_until", "rescheduled_until", "dropped_at"):
            if getattr(key, name) is not None:
                setattr(key, name, getattr(key, name) - by)
        ms = by // timedelta(milliseconds=1)
        windows = key.starts.get("windows", {})
        key.starts["windows"] = {
            period: [[at - ms, n] for at, n in log] for period, log in windows.items()
        }
        throttles = key.starts.get("throttles", {})
        key.starts["throttles"] = {interval: at - ms for interval, at in throttles.items()}
        key.save()


def events(type: str) -> list[dict[str, Any]]:
    return [each.data for each in Event.objects.filter(type=type).order_by("id")]


@pytest.mark.requirement("RL-6.2-1")
@pytest.mark.parametrize("limit", [HOURLY, {"throttle": HOURLY["rate"]}])
def test_rescheduled_jobs_are_due_when_their_rate_has_room_one_after_the_other(limit: Any) -> None:
    first, *others = add(3, on_limit="reschedule", **limit)
    assert [job.id for job in claim()] == [first.pk]
    assert [job.state for job in jobs().filter(pk__in=[job.pk for job in others])] == [
        "scheduled",
        "scheduled",
    ]
    one, two = due()
    assert MINUTE * 58 < one < MINUTE * 63
    assert MINUTE * 58 < two - one < MINUTE * 62
    # No attempt was spent, and no job is lost.
    assert set(jobs().values_list("attempt", "returned")) == {(1, 0), (0, 0)}
    assert LimitCheck.primary.filter(due_at__lte=timezone.now()).count() == 0
    assert claim() == []
    time_passes(HOUR + MINUTE * 3)
    (again,) = claim()
    assert again.id == others[0].pk
    ack.ack(again.id)
    assert len(due()) == 1
    # It waits for the key, unlike a job that is to start later anyway.
    later = timezone.now() + 9 * HOUR
    push(queue="carrier", rate_limit={"key": "acme", **limit}, scheduled_at=later)
    shown = Api().get("rate-limits/acme").ok()
    assert shown["waiting_count"] == 1
    assert shown.keys() & limit.keys()


def test_rescheduled_jobs_of_a_running_limit_are_due_at_intervals() -> None:
    add(5, concurrency=2, on_limit="reschedule")
    assert len(claim()) == 2
    found = due()
    assert len(found) == 3
    assert all(at < SECOND * 3 for at in found)
    claimed = jobs().filter(state="active").earliest("started_at").started_at
    assert claimed is not None
    first = jobs().filter(state="scheduled").earliest("due_at").due_at
    assert first is not None
    assert first - claimed > SECOND * 0.5
    gaps = [b - a for a, b in pairwise(found)]
    assert all(SECOND * 0.4 < gap < SECOND * 0.6 for gap in gaps)
    # As if it had just been rescheduled: on a busy machine it is due by now.
    waiting = jobs().filter(state="scheduled")
    waiting.update(due_at=F("due_at") + HOUR)
    reason = why_not_running(waiting[0])
    assert reason is not None
    assert "It was rescheduled at its limit. It is due in" in reason.sentence
    waiting.update(due_at=F("due_at") - HOUR)
    for job in jobs().filter(state="active"):
        ack.ack(job.pk)
    time_passes(SECOND * 5)
    assert len(claim()) == 2


def test_a_response_shows_when_a_rescheduled_job_is_due() -> None:
    api = Api()
    policy = {"key": "acme", "concurrency": 0, "on_limit": "reschedule"}
    past = "2020-01-01T00:00:00Z"
    body = {"type": "t.t", "args": [], "options": {"queue": "carrier", "rate_limit": policy}}
    job = api.post("jobs", body).ok(201)["job"]
    jobs().update(options=jobs().get().options | {"scheduled_at": past})
    assert claim() == []
    found = api.info(job["id"])
    assert found["state"] == "scheduled"
    assert found["scheduled_at"] > past
    jobs().update(due_at=timezone.now() - MINUTE)
    promotion.promote()
    assert api.info(job["id"])["scheduled_at"] == past


@pytest.mark.requirement("RL-6.2-2", "RL-11.1-1")
def test_dropped_jobs_are_discarded_with_a_reason_counted_and_told() -> None:
    first, *others = add(4, concurrency=1, on_limit="drop")
    assert [job.id for job in claim()] == [first.pk]
    dropped = jobs().filter(state="discarded")
    assert {job.pk for job in dropped} == {job.pk for job in others}
    job = dropped[0]
    assert (job.discard_reason, job.dead_letter, job.attempt) == ("rate_limited", False, 0)
    assert "on_limit" in job.error["message"]
    assert LimitKey.primary.get().dropped == 3
    told = events("rate_limit.dropped")
    assert {each["job_id"] for each in told} == {str(job.pk) for job in others}
    assert {(each["key"], each["job_type"]) for each in told} == {("acme", "test.job")}
    assert len(events("job.discarded")) == 3
    assert len(events("rate_limit.exceeded")) == 1
    shown = Api().info(str(job.pk))
    assert "completed_at" not in shown
    # An operator may run it again; it needs room then, as before.
    ack.ack(first.pk)
    retry.retry(job.pk)
    assert [job.id for job in claim()] == [job.pk]
    # What is known of them goes an hour later.
    add(1, concurrency=1, on_limit="drop")
    claim()
    assert LimitKey.primary.get().dropped == 4
    time_passes(MINUTE * 90)
    add(1, concurrency=1, on_limit="drop")
    claim()
    assert LimitKey.primary.get().dropped == 1
    ack.ack(job.pk)
    for _ in range(3):
        limit_journal.open_due()
        time_passes(MINUTE * 90)
    assert events("rate_limit.released")
    assert claims_by_key.prune() == 1


@pytest.mark.requirement("RL-6.2")
def test_each_job_does_what_its_own_policy_says() -> None:
    running, *_ = add(1, concurrency=1)
    waits, *_ = add(1, concurrency=1)
    later, *_ = add(1, concurrency=1, on_limit="reschedule")
    never, *_ = add(1, concurrency=1, on_limit="drop")
    plain, *_ = push_many(1, queue="carrier")
    assert {job.id for job in claim()} == {running.pk, plain.pk}
    states = {key: jobs().get(pk=key.pk).state for key in (waits, later, never)}
    assert list(states.values()) == ["available", "scheduled", "discarded"]


def test_a_limit_of_the_queue_drops_no_job() -> None:
    queues.configure("carrier", {"concurrency": 1})
    add(3, concurrency=5, on_limit="drop")
    assert len(claim()) == 1
    assert claim() == []
    assert jobs().filter(state="available").count() == 2


def test_a_job_that_failed_may_be_dropped_when_it_is_due_again() -> None:
    limit_keys.override("acme", {"concurrency": 1})
    (job,) = push_many(
        1, queue="carrier", retry=hourly(), rate_limit={"key": "acme", "on_limit": "drop"}
    )
    (running,) = claim()
    assert running.id == job.pk
    jobs().update(state="retryable", due_at=timezone.now() - MINUTE, lease_until=None)
    limit_keys.override("acme", {"concurrency": 0})
    assert claim() == []
    assert jobs().get().discard_reason == "rate_limited"


@pytest.mark.parametrize("on_limit", ["reschedule", "drop"])
def test_thousands_of_jobs_of_an_exhausted_key_do_not_keep_a_claim(on_limit: str) -> None:
    most = ruled_claims.CANDIDATES_AT_ONCE * ruled_claims.ROUNDS
    add(most * 2, concurrency=0, on_limit=on_limit)
    with CaptureQueriesContext(connection) as captured:
        assert claim() == []
    moved = jobs().exclude(state="available").count()
    assert ruled_claims.CANDIDATES_AT_ONCE <= moved <= most
    assert len(captured) < 20 * ruled_claims.ROUNDS
    while jobs().filter(state="available").exists():
        assert claim() == []
    (other,) = add(1, key="other", concurrency=1)
    assert [job.id for job in claim()] == [other.pk]


@override_settings(OJS={"MAX_FETCH_BYTES": 100_000, "KEEP_EVENTS": ["job.discarded"]})
@pytest.mark.statements
def test_a_claim_drops_no_more_bytes_than_it_may_claim_and_reads_no_arguments() -> None:
    args, policy = ["x" * 30_000], {"key": "acme", "concurrency": 0, "on_limit": "drop"}
    push_many(7, queue="carrier", args=args, rate_limit=policy)
    push_many(1, queue="carrier", args=["x" * 200_000], rate_limit=policy)
    (open_one,) = add(1, key="other", concurrency=1)
    left = []
    for _ in range(4):
        with CaptureQueriesContext(connection) as captured:
            found = claim()
        left.append(jobs().filter(state="available").count())
        assert not any('"ojs_job"."args"' in query["sql"] for query in captured)
    # Three of 30 kB each; one that is larger than the limit goes alone.
    assert left == [6, 3, 2, 0]
    assert [job.id for job in found] == [open_one.pk]
    assert len(events("job.discarded")) == 8

    def received(job: Job, **kwargs: Any) -> None:
        assert "args" not in job.get_deferred_fields()

    push_many(1, queue="carrier", args=args, rate_limit=policy)
    with (
        receiving(received, signals.job_discarded),
        CaptureQueriesContext(connection) as captured,
    ):
        claim()
    assert any('"ojs_job"."args"' in query["sql"] for query in captured)


@pytest.mark.statements
def test_a_claim_of_a_queue_without_limits_is_one_statement() -> None:
    add(1, concurrency=1, on_limit="drop")
    push_many(1, queue="plain")
    queue_configs.current()
    with CaptureQueriesContext(connection) as captured:
        assert len(fetch.fetch(["plain"], worker_id=WORKER, due=False)) == 1
    assert len([q for q in captured if "ojs_job" in q["sql"]]) == 1


@pytest.mark.django_db(transaction=True)
def test_workers_at_the_same_time_run_or_drop_each_job_once() -> None:
    for key in ("acme", "bravo"):
        add(15, key=key, concurrency=2, on_limit="drop")
    seen: list[int] = []

    def work(worker: int) -> int:
        done = 0
        while jobs().filter(state__in=["available", "active"]).exists():
            for job in fetch.fetch(["carrier"], count=3, worker_id=f"w{worker}"):
                active = jobs_of_key(job.options["rate_limit"]["key"]).filter(state="active")
                seen.append(active.count())
                ack.ack(job.id)
                done += 1
        return done

    done = sum(at_once([partial(work, number) for number in range(4)]))
    assert max(seen) <= 2
    dropped = jobs().filter(discard_reason="rate_limited").count()
    assert jobs().filter(state="completed").count() == done
    assert done + dropped == 30
    assert len(events("rate_limit.dropped")) == dropped


@pytest.mark.django_db(transaction=True)
def test_what_a_claim_drops_or_reschedules_is_undone_with_it(monkeypatch: Any) -> None:
    add(2, concurrency=1, on_limit="drop")
    add(2, key="bravo", concurrency=1, on_limit="reschedule")

    def fails(*args: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr(claims_by_key, "_add_starts", fails)
    assert claim() == []
    assert set(jobs().values_list("state", flat=True)) == {"available"}
    monkeypatch.undo()
    assert len(claim()) == 2
    states = sorted(jobs().values_list("state", flat=True))
    assert states == ["active", "active", "discarded", "scheduled"]


def test_dropped_jobs_are_in_the_figures(django_capture_on_commit_callbacks: Any) -> None:
    rollups.flush()
    add(3, concurrency=0, on_limit="drop")
    with django_capture_on_commit_callbacks(execute=True):
        claim()
    figures = rollups.accumulator.figures.values()
    assert sum(each.counts[rollups.DISCARDED] for each in figures) == 3

"""The histories of all jobs: search, statistics and deletion."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.db import connection
from django.db.models import F
from django.test import override_settings

from django_ojs.models import Attempt, AuditEntry
from django_ojs.operations import ack, cancel, fail, fetch
from django_ojs.operations.jobs import history_search
from django_ojs.spec.failure import Failure
from django_ojs.storage.figures import rollups
from tests.factories import BOOM, HOUR, MINUTE, active, age, hourly, in_state, jobs, push
from tests.http.api import Api, make_key

pytestmark = pytest.mark.django_db

api = Api()


def search(**query: Any) -> Any:
    return api.get(f"history?{urlencode(query)}").ok()


def kinds(**query: Any) -> list[str]:
    return [event["event_type"] for event in search(**query)["events"]]


@pytest.fixture
def scene() -> dict[str, Any]:
    """Make a job that failed and then succeeded, and jobs that ended in other ways."""
    lucky = active(queue="mail", type="mail.send", retry=hourly(3), worker_id="w-1", args=["é"])
    fail.fail(lucky.id, Failure(type="SMTPError", message="mailbox unavailable"))
    age(lucky.id, 2 * HOUR)
    fetch.fetch(["mail"], worker_id="w-2")
    ack.ack(lucky.id)
    dead = in_state("discarded", queue="pay", type="pay.charge", retry=hourly(1))
    returned = active(queue="pay", worker_id="w-1")
    fail.requeue(returned.id, BOOM)
    cancelled = cancel.cancel(push(queue="pay").pk)[0]
    # SQLite's clock has milliseconds: a creation, a start and an end could have the same time.
    jobs().update(created_at=F("created_at") - MINUTE)
    jobs().filter(pk=lucky.id).update(started_at=F("started_at") - MINUTE / 4)
    earlier = {name: F(name) - MINUTE / 2 for name in ("started_at", "finished_at")}
    Attempt.primary.filter(job_id=lucky.id).update(**earlier)
    return {
        "lucky": str(lucky.id),
        "dead": str(dead.pk),
        "returned": str(returned.id),
        "cancelled": str(cancelled.pk),
    }


@pytest.mark.requirement("EH-S02")
def test_all_histories_are_searched_newest_first(scene: dict[str, Any]) -> None:
    body = search()
    # What the search finds of a job is the history of that job.
    for key in scene.values():
        of_job = api.get(f"jobs/{key}/history").ok()["events"]
        assert [each for each in body["events"] if each["job_id"] == key][::-1] == of_job
    times = [event["timestamp"] for event in body["events"]]
    assert times == sorted(times, reverse=True)
    assert len(times) == body["total_estimate"] == 5 + 4 + 3 + 2
    assert body["next_cursor"] is None
    assert kinds(event_types="job.attempt_failed,job.discarded", queues="pay") == [
        "job.discarded",
        "job.attempt_failed",
    ]
    (failed,) = search(query="mailbox")["events"]
    assert (failed["job_id"], failed["data"]["error_type"]) == (scene["lucky"], "SMTPError")
    assert kinds(query="SMTPError") == kinds(query="mailbox") == ["job.attempt_failed"]
    assert kinds(query="w-2") == ["job.attempt_completed", "job.attempt_started"]
    assert kinds(job_types="mail.send,none", event_types="job.created") == ["job.created"]
    assert "job.discarded" not in kinds(actor_type="worker")
    assert len(kinds(actor_type="worker")) == 4 + 2 + 2
    assert kinds(actor_type="user") == []
    (start,) = (e["timestamp"] for e in body["events"] if e["event_type"] == "job.discarded")
    assert len(kinds(start=start)) + len(kinds(end=start)) == len(times)


@pytest.mark.requirement("EH-S02")
def test_each_page_goes_on_where_the_one_before_ended(scene: dict[str, Any]) -> None:
    # Jobs of one time, as after a bulk operation: nothing is shown twice, and nothing left out.
    moment = datetime.now(UTC).replace(microsecond=0)
    jobs().filter(finished_at__isnull=False).update(finished_at=moment)
    whole = [event["id"] for event in search()["events"]]
    for limit in (1, 3, 5):
        seen: list[str] = []
        cursor = ""
        while cursor is not None:
            page = search(limit=limit, cursor=cursor)
            seen += [event["id"] for event in page["events"]]
            cursor = page["next_cursor"]
            assert page["total_estimate"] == len(whole)
        assert seen == whole
    assert len(set(whole)) == len(whole)
    clamped = api.get("history?limit=1001")
    assert clamped.headers["X-OJS-Limit-Clamped"] == "true"
    assert "X-OJS-Limit-Clamped" not in api.get("history?limit=1000").headers
    for query, field in (
        ("cursor=x", "cursor"),
        ("limit=0", "limit"),
        ("event_types=job.born", "event_types"),
        ("actor_type=ghost", "actor_type"),
        ("start=yesterday", "start"),
        ("queues=A", "queues"),
        ("job_types=A", "job_types must be dotted"),
        ("query=%00", "query"),
    ):
        api.get(f"history?{query}").error(400, "invalid_request")
        assert field in str(api.get(f"history?{query}").body)


@override_settings(OJS={})
def test_a_search_ends_at_the_queues_of_the_caller(scene: dict[str, Any]) -> None:
    limited = Api(make_key("read", queues=("mail",)))
    found = limited.get("history").ok()
    assert {event["job_id"] for event in found["events"]} == {scene["lucky"]}
    assert found["total_estimate"] == 5
    limited.get("history?queues=pay").error(403, "PERMISSION_DENIED")


@pytest.mark.skipif(connection.vendor != "postgresql", reason="only on postgresql")
def test_the_ends_of_attempts_and_jobs_are_found_by_an_index() -> None:
    for source in history_search._SOURCES:
        rows = source.newest(history_search.HistoryFilter())
        assert rows is not None
        with connection.cursor() as cursor:
            # There are no rows here: what other tests left of the tables decides nothing then.
            cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off")
        plan = source.first(rows, None, 50).explain()
        if source.time == "finished_at":
            # Of the dead letters there is an index by their end alone, too.
            names = ("ojs_attempt_finished", "ojs_job_finished", "ojs_job_dead")
            assert any(f"using {name} on" in plan for name in names), plan


@pytest.mark.django_db(transaction=True)
@pytest.mark.requirement("EH-S04")
def test_the_events_of_each_hour_are_counted(scene: dict[str, Any]) -> None:
    rollups.flush()
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    for group_by in ("minute", "hour", "day"):
        query = {"group_by": group_by, "queues": "mail"}
        buckets = api.get(f"history/stats?{urlencode(query)}").ok()["buckets"]
        sums = {
            name: sum(bucket["events"][name] for bucket in buckets)
            for name in ("job.created", "job.attempt_completed", "job.attempt_failed")
        }
        assert sums == {
            "job.created": 1,
            "job.attempt_completed": 1,
            "job.attempt_failed": 1,
        }
        (busy,) = (bucket for bucket in buckets if bucket["events"]["job.attempt_completed"])
        assert busy["avg_duration_ms"] > 0
        assert busy["p95_duration_ms"] > 0
    query = {"start": tomorrow, "job_types": "mail.send"}
    rejected = api.get(f"history/stats?{urlencode(query)}")
    rejected.error(400, "invalid_request", field="start")
    assert "start must be before end." in rejected.body["error"]["message"]
    rejected = api.get("history/stats?group_by=minute&start=2020-01-01T00:00:00Z")
    rejected.error(400, "invalid_request", field="start")
    assert "start and end must be at most" in rejected.body["error"]["message"]
    api.get("history/stats?job_types=A").error(400, "invalid_request", field="job_types")
    other = api.get("history/stats?job_types=pay.charge").ok()["buckets"]
    assert sum(bucket["events"]["job.discarded"] for bucket in other) == 1
    assert sum(bucket["events"]["job.created"] for bucket in other) == 1


@pytest.mark.requirement("EH-S05")
def test_the_histories_before_a_moment_are_deleted_and_the_jobs_stay(
    scene: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_search, "BATCH", 1)
    monkeypatch.setattr(history_search, "DELETED", 1)
    (first, *_) = (
        event for event in search(event_types="job.attempt_completed", queues="mail")["events"]
    )
    before = urlencode({"before": first["timestamp"], "queues": "mail"})
    api.delete(f"history?{before}&event_types=job.created").error(
        400, "invalid_request", field="event_types"
    )
    api.delete("history").error(400, "invalid_request", field="before")
    page = api.delete(f"history?{before}").ok()
    assert (page["purged"], page["events_purged"], page["async"]) == (False, 4, False)
    last = api.delete(f"history?{before}&cursor={page['next_cursor']}").ok()
    assert last == {"purged": True, "events_purged": 0, "async": False, "next_cursor": None}
    assert kinds(queues="mail") == ["job.attempt_completed"]
    assert len(kinds(queues="pay")) == 9
    job = api.get(f"jobs/{scene['lucky']}").ok()["job"]
    assert (job["state"], job["args"]) == ("completed", ["é"])
    assert "errors" not in job
    entry = AuditEntry.primary.filter(action="jobs.history_deleted").earliest("pk")
    assert (entry.detail["queues"], entry.detail["events"]) == (["mail"], 4)


def test_rows_without_a_time_fill_no_page() -> None:
    ended = [in_state("completed").pk for _ in range(4)]
    # As rows of another program may be.
    jobs().filter(pk__in=ended[1:]).update(started_at=None)
    page = search(event_types="job.attempt_started", limit=1)
    assert [event["job_id"] for event in page["events"]] == [str(ended[0])]
    assert (page["total_estimate"], page["next_cursor"]) == (1, None)


def test_what_has_not_happened_yet_is_not_deleted(scene: dict[str, Any]) -> None:
    running = active(retry=hourly(3))
    future = urlencode({"before": (datetime.now(UTC) + timedelta(days=9)).isoformat()})
    assert api.delete(f"history?{future}").ok()["events_purged"] == 14 + 2
    assert kinds() == []
    fail.fail(running.id, BOOM)
    assert kinds() == ["job.attempt_failed"]
    # There may be no job.
    assert api.delete(f"history?{future}&queues=none").ok()["purged"] is True


@override_settings(OJS={})
def test_a_dead_letter_that_was_moved_is_found_by_the_queue_where_it_ran() -> None:
    dead = in_state("discarded", queue="mine", retry=hourly(1))
    jobs().filter(pk=dead.pk).update(queue="moved", original_queue="mine")
    past = urlencode({"before": datetime.now(UTC).isoformat()})

    def limited(*queues: str) -> Api:
        return Api(make_key("admin", queues=queues))

    for queue in ("mine", "moved"):
        for query in ("", f"?queues={queue}"):
            assert limited(queue).get(f"history{query}").ok()["total_estimate"] == 4
        # As with the history of one job: who changes it may use both of its queues.
        limited(queue).delete(f"jobs/{dead.pk}/history").error(403, "PERMISSION_DENIED")
        assert limited(queue).delete(f"history?{past}").ok()["events_purged"] == 0
    both = limited("mine", "moved")
    assert both.delete(f"history?{past}&queues=mine").ok()["events_purged"] == 4


def test_all_queries_of_a_search_have_one_time(
    scene: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_search, "ALL_SECONDS", 0.0)
    error = Api(raising=False).get("history").error(504, "BACKEND_TIMEOUT")
    assert "Name a start" in error["message"]
    # Nothing that must be read.
    assert kinds(actor_type="user") == []

"""Limits on running and on starting the jobs of a queue (ojs-rate-limiting, queue-config §6.2)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_ojs.extensions.limits import claims_by_queue
from django_ojs.extensions.limits.models import LimitedQueue
from django_ojs.models import Queue
from django_ojs.operations import ack, fail, fetch, queue_rows, queues
from django_ojs.storage import in_memory_state
from django_ojs.storage.claimed_job import Claimed
from django_ojs.storage.next_starts import next_starts
from tests.factories import WORKER, hourly, jobs, push, push_many
from tests.http.api import Api
from tests.operations.queues.ends import every_end
from tests.operations.queues.starts import may_start_soon
from tests.threads import at_once

pytestmark = pytest.mark.django_db


def claim(queue: str = "carrier", count: int = 100, **values: Any) -> list[Claimed]:
    return fetch.fetch([queue], count=count, worker_id=WORKER, **values)


@pytest.fixture
def limited() -> None:
    queues.configure("carrier", {"concurrency": 3})


@pytest.mark.usefixtures("limited")
class TestConcurrency:
    @pytest.mark.requirement("L4-RATE-001", "RL-003")
    def test_no_more_run_than_the_limit_and_the_others_stay_available(self) -> None:
        push_many(5, queue="carrier")
        assert len(claim(count=2)) == 2
        assert len(claim()) == 1
        assert claim() == []
        assert jobs().filter(state="available").count() == 2

    @pytest.mark.requirement("RL-5.1")
    @every_end
    def test_whatever_ends_a_run_leaves_room_for_another(self, end: Any) -> None:
        push_many(9, queue="carrier", retry=hourly())
        running = claim()
        assert claim() == []
        end(running[0])
        active = jobs().filter(state="active").count()
        assert len(claim()) == 3 - active > 0

    def test_jobs_that_ran_before_the_limit_was_set_count(self) -> None:
        queues.configure("carrier", {"concurrency": None})
        push_many(9, queue="carrier")
        assert len(claim(count=2)) == 2
        queues.configure("carrier", {"concurrency": 3})
        assert len(claim()) == 1

    def test_a_lower_limit_lets_the_running_jobs_end_and_starts_no_other(self) -> None:
        push_many(9, queue="carrier")
        running = claim()
        queues.configure("carrier", {"concurrency": 2})
        ack.ack(running[0].id)
        assert claim() == []
        ack.ack(running[1].id)
        assert len(claim()) == 1

    @pytest.mark.requirement("RL-8.2")
    def test_the_best_jobs_start_first(self) -> None:
        push_many(4, queue="carrier")
        urgent = push(queue="carrier", priority=5)
        assert claim()[0].id == urgent.pk

    @pytest.mark.requirement("RL-004")
    def test_a_queue_at_its_limit_does_not_stop_the_next_one(self) -> None:
        push_many(5, queue="carrier")
        push_many(2, queue="other")
        found = fetch.fetch(["carrier", "other"], count=100, worker_id=WORKER)
        assert [job.queue for job in found] == ["carrier"] * 3 + ["other"] * 2

    def test_a_full_queue_costs_one_query_until_it_has_room(self) -> None:
        push_many(5, queue="carrier")
        running = claim()
        with CaptureQueriesContext(connection) as captured:
            assert claim(due=False) == []
        assert len([query for query in captured if "ojs_job" in query["sql"]]) == 1
        ack.ack(running[0].id)
        assert len(claim()) == 1

    def test_all_full_queues_of_a_claim_cost_one_query(self) -> None:
        names = ["carrier", "post", "courier"]
        running = {}
        for name in names:
            queues.configure(name, {"concurrency": 1})
            push_many(2, queue=name)
            (running[name],) = claim(name)
        with CaptureQueriesContext(connection) as captured:
            assert fetch.fetch(names, count=9, worker_id=WORKER, due=False) == []
        assert len([query for query in captured if "ojs_job" in query["sql"]]) == 1
        ack.ack(running["post"].id)
        found = fetch.fetch(names, count=9, worker_id=WORKER, due=False)
        assert [job.queue for job in found] == ["post"]

    def test_a_queue_that_stays_full_is_tried_less_and_less_often(self) -> None:
        push_many(5, queue="carrier")
        running = claim()
        for _ in range(9):
            assert claim(due=False) == []
        assert (next_starts.seconds() or 0) > 5
        ack.ack(running[0].id)
        assert len(claim()) == 1
        assert (next_starts.seconds() or 0) < 1

    def test_the_worker_learns_when_to_try_again(self) -> None:
        push_many(4, queue="carrier")
        assert next_starts.seconds() is None
        claim()
        assert may_start_soon(next_starts.seconds())


@pytest.mark.parametrize("limit", [{"concurrency": 1}, {"rate_limit": {"max_per_second": 1}}])
def test_the_limit_of_the_default_policy_holds_for_each_queue(limit: Any) -> None:
    queues.configure_default(limit)
    push_many(3, queue="carrier")
    push_many(3, queue="other")
    assert (len(claim("carrier")), len(claim("other"))) == (1, 1)
    queues.configure_default(dict.fromkeys(limit))
    assert len(claim()) == 2


def test_no_limit_of_its_own_wins_over_the_default_policy() -> None:
    queues.configure_default({"concurrency": 1})
    queues.configure("carrier", {"concurrency": 0})
    push_many(3, queue="carrier")
    assert len(claim()) == 3


@override_settings(OJS={"QUEUES": {"carrier": {"concurrency": 2}}})
def test_the_settings_may_limit_a_queue() -> None:
    push_many(3, queue="carrier")
    assert len(claim()) == 2
    assert claim() == []


@pytest.mark.usefixtures("limited")
def test_a_process_that_does_not_know_the_limit_yet_claims_nothing(monkeypatch: Any) -> None:
    push_many(5, queue="carrier")
    in_memory_state.reset()
    with monkeypatch.context() as patch:
        patch.setattr(fetch.queue_configs, "remembered_rules", lambda name: 0)
        assert claim() == []
    assert len(claim()) == 3


@pytest.mark.statements
def test_a_queue_without_limits_is_claimed_in_one_statement() -> None:
    push_many(5, queue="plain")
    with CaptureQueriesContext(connection) as captured:
        assert len(claim("plain", 2, due=False)) == 2
    assert len(captured) == 1


@pytest.mark.requirement("RL-R001")
@pytest.mark.parametrize(
    "limit",
    [
        {"limit": 2, "period": "PT10M"},
        {"rate": {"limit": 2, "period": "PT10M"}},
        {"rate": {"limit": 2, "period": "PT10M"}, "limit": 500, "period": "PT1H"},
    ],
)
def test_a_rate_counts_the_starts_of_a_window_and_not_the_running_jobs(limit: Any) -> None:
    queues.configure("carrier", {"rate_limit": limit})
    push_many(5, queue="carrier")
    running = claim()
    assert len(running) == 2
    for job in running:
        ack.ack(job.id)
    assert claim() == []
    earlier(1_200_000)
    assert len(claim()) == 2


def test_max_per_second_is_a_rate_of_one_second() -> None:
    limits = []
    for limit in ({"max_per_second": 2}, {"limit": 2, "period": "PT1S"}):
        queues.configure("carrier", {"rate_limit": limit})
        used = claims_by_queue.use("carrier")
        limits.append(used and used.limit)
    assert limits[0] == limits[1] is not None


def test_a_start_counts_from_the_claim_when_the_process_was_suspended_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queues.configure("carrier", {"rate_limit": {"limit": 2, "period": "PT1S"}})
    push_many(5, queue="carrier")
    use = claims_by_queue.use

    def of_a_second_ago(queue: str) -> claims_by_queue.Use:
        used = use(queue)
        assert used is not None
        return replace(used, now=used.now - 1000)

    with monkeypatch.context() as patch:
        patch.setattr(claims_by_queue, "use", of_a_second_ago)
        [first, _] = claim()
    (stored,) = LimitedQueue.objects.values_list("starts", flat=True)
    ((counted_at, number),) = stored["windows"]["1000"]
    assert number == 2
    assert counted_at / 1000 >= first.started_at.timestamp()


@pytest.mark.requirement("RL-R002")
def test_a_throttle_gives_one_start_at_a_time() -> None:
    queues.configure("carrier", {"rate_limit": {"throttle": {"limit": 60, "period": "PT1H"}}})
    push_many(5, queue="carrier")
    assert len(claim()) == 1
    assert claim() == []
    assert 30 < (next_starts.seconds() or 0) <= 60.1
    earlier(60_000)
    assert len(claim()) == 1
    earlier(3_600_000)
    assert len(claim()) == 1


@pytest.mark.parametrize(
    "limit", [{"limit": 2, "period": "PT1S"}, {"throttle": {"limit": 60, "period": "PT1M"}}]
)
def test_a_clock_that_is_set_back_does_not_stop_a_queue(limit: Any) -> None:
    queues.configure("carrier", {"rate_limit": limit})
    push_many(9, queue="carrier")
    started = len(claim())
    earlier(-3_600_000)
    # The starts count as if they were made now.
    assert claim() == []
    assert (next_starts.seconds() or 0) < 2
    earlier(1100)
    assert len(claim()) == started


@pytest.mark.requirement("RL-6.3")
def test_all_limits_of_a_queue_hold() -> None:
    queues.configure("carrier", {"concurrency": 3, "rate_limit": {"limit": 4, "period": "PT1H"}})
    push_many(9, queue="carrier")
    running = claim()
    assert len(running) == 3
    for job in running:
        ack.ack(job.id)
    assert len(claim()) == 1


def test_a_retried_job_counts_as_a_start_again() -> None:
    queues.configure("carrier", {"rate_limit": {"limit": 2, "period": "PT1H"}})
    push(queue="carrier")
    for _ in range(2):
        (job,) = claim()
        fail.requeue(job.id)
    assert claim() == []


@override_settings(OJS={"QUEUES": {"carrier": {"rate_limit": {"limit": 2, "period": "PT1H"}}}})
def test_a_queue_that_was_deleted_does_not_exceed_a_rate_of_the_settings() -> None:
    push_many(2, queue="carrier")
    for job in claim():
        ack.ack(job.id)
    queues.delete("carrier")
    push(queue="carrier")
    assert claim() == []


def earlier(milliseconds: int) -> None:
    """Move all starts into the past, as if so much time had gone by."""
    row = LimitedQueue.primary.get()
    windows = row.starts["windows"].items()
    row.starts["windows"] = {ms: [[at - milliseconds, n] for at, n in log] for ms, log in windows}
    due = row.starts["throttles"].items()
    row.starts["throttles"] = {key: at - milliseconds for key, at in due}
    row.save()


@pytest.mark.requirement("RL-R005")
def test_the_control_plane_replaces_the_limits_of_a_queue() -> None:
    queues.configure("email", {"concurrency": 5, "rate_limit": {"max_per_second": 1}})
    limits = {"concurrency": 20, "rate": {"limit": 1000, "period": "PT1H"}}
    body = Api().put("admin/queues/email/rate-limit", limits).ok()
    rate = {"rate": {"limit": 1000, "period": "PT1H"}}
    assert body["configuration"] == {"concurrency": 20, "rate_limit": rate}
    assert Api().put("admin/queues/email/rate-limit", {}).ok()["configuration"] == {}
    wrong = {"rate": {"limit": 0, "period": "PT1H"}}
    Api().put("admin/queues/email/rate-limit", wrong).error(
        400, "invalid_request", field="rate_limit.rate.limit"
    )


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_transaction_with_an_old_snapshot_starts_no_job_of_a_limited_queue() -> None:
    queues.configure("carrier", {"concurrency": 1})
    push_many(2, queue="carrier")
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        assert claim() == []
    assert len(claim()) == 1


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_limits_hold_where_the_session_has_another_default_isolation_level() -> None:
    queues.configure("carrier", {"concurrency": 1})
    push_many(2, queue="carrier")
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_isolation = 'repeatable read'")
    try:
        assert len(claim()) == 1
        assert claim() == []
    finally:
        with connection.cursor() as cursor:
            cursor.execute("RESET default_transaction_isolation")


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_transaction_that_holds_the_lock_of_a_limit_delays_no_other_queue() -> None:
    queues.configure("carrier", {"concurrency": 3})
    push(queue="carrier")
    push(queue="plain")
    other = connection.copy()
    try:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(20297, hashtext('limits of carrier'))")
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '5s'")
        found = fetch.fetch(["carrier", "plain"], count=5, worker_id=WORKER)
        assert [job.queue for job in found] == ["plain"]
        assert may_start_soon(next_starts.seconds())
        other.rollback()
        assert len(claim()) == 1
    finally:
        other.close()
        with connection.cursor() as cursor:
            cursor.execute("RESET lock_timeout")


@pytest.mark.requirement("RL-001")
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "limit", [{"concurrency": 3}, {"rate_limit": {"limit": 3, "period": "PT1H"}}]
)
def test_many_workers_at_once_never_exceed_a_limit(limit: Any) -> None:
    queues.configure("carrier", limit)
    push_many(30, queue="carrier")

    def work() -> int:
        return sum(len(claim(count=2)) for _ in range(4))

    assert sum(at_once([work] * 8)) == 3
    assert jobs().filter(state="active").count() == 3


def test_a_limit_that_sql_has_written_holds_once_the_maintenance_has_seen_it() -> None:
    queues.configure("written", {"max_envelope_bytes": 10_000})
    push_many(3, queue="written")
    Queue.primary.filter(pk="written").update(config={"concurrency": 1})
    assert queue_rows.put_rules_right() == 1
    in_memory_state.reset()
    assert len(fetch.fetch(["written"], count=3, worker_id=WORKER)) == 1
    assert queue_rows.put_rules_right() == 0


@pytest.mark.django_db(transaction=True)
def test_limits_that_are_taken_out_and_migrated_again_hold_for_the_next_claim() -> None:
    queues.configure("kept", {"concurrency": 1})
    push_many(3, queue="kept", rate_limit={"key": "acme", "concurrency": 1})
    push_many(3, queue="kept")
    assert len(claim("kept", count=6)) == 1
    call_command("migrate", "ojs_limits", "zero", verbosity=0)
    call_command("migrate", "ojs_limits", verbosity=0)
    in_memory_state.reset()
    assert claim("kept", count=6) == []

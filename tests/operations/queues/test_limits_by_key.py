"""Limits by key on running and on starting jobs (ojs-rate-limiting)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import Count
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_ojs.extensions.limits import claims_by_key, limit_journal
from django_ojs.extensions.limits.claims_by_queue import Use
from django_ojs.extensions.limits.limit_key_use import KeyOfJob
from django_ojs.extensions.limits.models import HELD, LimitCheck, LimitKey
from django_ojs.models import Queue
from django_ojs.operations import ack, expiry, fetch, queues, retry
from django_ojs.spec.errors import OJSError
from django_ojs.storage import in_memory_state, queue_configs
from django_ojs.storage.claimed_job import Claimed
from django_ojs.storage.next_starts import next_starts
from tests.cases import together
from tests.factories import MINUTE, WORKER, checks_are_due, hourly, jobs, jobs_of_key, push
from tests.http.api import Api
from tests.operations.queues.ends import every_end
from tests.operations.queues.starts import may_start_soon
from tests.threads import at_once, elsewhere

pytestmark = pytest.mark.django_db


def add(key: str = "acme", *, concurrency: int = 1, number: int = 1, **values: Any) -> list[Any]:
    policy = {"key": key, "concurrency": concurrency}
    return [push(rate_limit=policy, **{"queue": "carrier", **values}) for _ in range(number)]


def claim(*names: str, count: int = 100, **values: Any) -> list[Claimed]:
    checks_are_due()
    return fetch.fetch(names or ["carrier"], count=count, worker_id=WORKER, **values)


def claim_of_a_new_process() -> tuple[list[Claimed], float | None]:
    """Claim without what this process remembers; return also when the worker is to try again."""
    in_memory_state.reset()
    return claim(), next_starts.seconds()


@pytest.mark.requirement("RL-001", "RL-003")
def test_no_more_jobs_of_a_key_run_than_its_limit_and_the_others_stay_available() -> None:
    add(concurrency=3, number=5)
    assert len(claim(count=2)) == 2
    assert len(claim()) == 1
    assert claim() == []
    assert jobs().filter(state="available").count() == 2


@every_end
def test_whatever_ends_a_run_leaves_room_for_another(end: Any) -> None:
    add(concurrency=3, number=9, retry=hourly())
    running = claim()
    assert claim() == []
    end(running[0])
    active = jobs().filter(state="active").count()
    assert len(claim()) == 3 - active > 0


@pytest.mark.requirement("RL-002", "RL-004")
def test_a_key_at_its_limit_does_not_stop_jobs_after_it() -> None:
    add("acme", number=300)
    other = add("bravo")[0]
    plain = push(queue="carrier")
    assert {job.id for job in claim()} >= {other.pk, plain.pk}
    assert jobs_of_key("acme").filter(state="active").count() == 1


def test_all_queues_whose_jobs_are_held_cost_one_query() -> None:
    names = ["carrier", "post"]
    running = {name: (add(name, number=2, queue=name), claim(name)[0])[1] for name in names}
    assert claim(*names) == []
    with CaptureQueriesContext(connection) as captured:
        assert fetch.fetch(names, count=9, worker_id=WORKER, due=False) == []
    assert len([query for query in captured if "ojs_job" in query["sql"]]) == 1
    ack.ack(running["post"].id)
    assert [job.queue for job in claim(*names)] == ["post"]


def test_held_jobs_are_not_read_again_and_are_opened_best_first() -> None:
    add(number=3)
    urgent = add(priority=5)[0]
    assert [job.id for job in claim()] == [urgent.pk]
    assert jobs().filter(hold=HELD, state="available").count() == 3
    best = add(priority=9)[0]
    ack.ack(urgent.pk)
    assert [job.id for job in claim()] == [best.pk]
    ack.ack(best.pk)
    oldest = jobs().filter(state="available").earliest("enqueued_at")
    assert [job.id for job in claim()] == [oldest.pk]


def test_a_job_that_was_held_when_it_ended_is_claimed_after_a_retry() -> None:
    add(number=2)
    (running,) = claim()
    held = jobs().get(hold=HELD)
    jobs().filter(pk=held.pk).update(expires_at=timezone.now() - MINUTE)
    assert expiry.expire() == 1
    ack.ack(running.id)
    assert claim() == []
    jobs().filter(pk=held.pk).update(expires_at=None)
    retry.retry(held.pk)
    assert [job.id for job in claim()] == [held.pk]


def test_a_paused_queue_does_not_keep_the_jobs_of_its_key_in_another_queue() -> None:
    add(queue="first", priority=9, number=2)
    add(queue="second", number=2)
    (running,) = claim("first", "second")
    assert running.queue == "first"
    queues.pause("first")
    ack.ack(running.id)
    assert [job.queue for job in claim("first", "second")] == ["second"]


def test_jobs_of_a_key_may_have_different_limits() -> None:
    add(concurrency=1, number=2)
    add(concurrency=3, number=3)
    assert len(claim()) == 3
    assert claim() == []


def test_a_key_with_a_concurrency_of_0_starts_none() -> None:
    add(concurrency=0)
    assert claim() == []


@pytest.mark.parametrize("number", [1, 30])
def test_held_jobs_that_may_not_start_do_not_keep_those_with_a_larger_limit(number: int) -> None:
    add(concurrency=0, number=number, priority=5)
    hourly_report = {"key": "acme", "rate": {"limit": 1, "period": "PT1H"}}
    for _ in range(number + 1):
        push(queue="carrier", rate_limit=hourly_report, priority=3)
    add(concurrency=2, number=3)
    report, first = claim()
    for running in (report, first):
        ack.ack(running.id)
        (found,) = claim()
        assert jobs().get(pk=found.id).options["rate_limit"]["concurrency"] == 2


def test_a_limit_without_a_key_is_of_the_queue() -> None:
    for queue in ("first", "second"):
        for _ in range(2):
            push(queue=queue, rate_limit={"concurrency": 1})
    assert [job.queue for job in claim("first", "second")] == ["first", "second"]


def test_the_longest_name_of_a_queue_gives_a_key() -> None:
    for _ in range(2):
        push(queue="q" * 255, rate_limit={"concurrency": 1})
    assert len(claim("q" * 255)) == 1


@pytest.mark.requirement("RL-R001", "RL-R002")
@pytest.mark.parametrize("limit", ["rate", "throttle"])
def test_a_rate_holds_for_the_jobs_of_a_key_and_lets_them_start_when_it_has_room(
    limit: str,
) -> None:
    for key in ("acme", "acme", "acme", "bravo"):
        policy = {"key": key, limit: {"limit": 1, "period": "PT1H"}}
        push(queue="carrier", rate_limit=policy)
    assert len(claim()) == 2
    assert claim() == []
    due = LimitCheck.primary.get().due_at - timezone.now()
    assert MINUTE * 58 < due < MINUTE * 62
    # As if the hour were over.
    LimitKey.primary.update(starts={})
    LimitCheck.primary.update(due_at=timezone.now() - MINUTE)
    assert len(claim()) == 1
    assert claim() == []


def test_a_key_is_checked_when_the_first_of_its_rates_has_room() -> None:
    for period in ("PT1M", "PT1H"):
        policy = {"key": "acme", "rate": {"limit": 1, "period": period}}
        push(queue="carrier", rate_limit=policy)
        push(queue="carrier", rate_limit=policy)
    assert len(claim()) == 2
    assert LimitCheck.primary.get().due_at - timezone.now() < MINUTE * 2


def test_a_start_counts_from_when_the_job_was_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    push(rate_limit={"key": "acme", "rate": {"limit": 1, "period": "PT1H"}}, queue="carrier")
    uses = claims_by_key.uses_of

    def read_long_before(keys: Any) -> dict[str, Use]:
        # The process is suspended between its two statements.
        return {key: replace(use, now=use.now - 3_000_000) for key, use in uses(keys).items()}

    monkeypatch.setattr(claims_by_key, "uses_of", read_long_before)
    assert len(claim()) == 1
    assert LimitKey.primary.get().expires_at - timezone.now() > MINUTE * 58


def test_the_starts_of_a_key_are_kept_as_long_as_a_rate_needs_them() -> None:
    for policy in ({"rate": {"limit": 1, "period": "PT1H"}}, {"concurrency": 1}):
        push(queue="carrier", rate_limit={"key": "acme", **policy})
    assert len(claim()) == 1
    # The second job is at its limit of one; the start of the first counts for an hour.
    kept = LimitKey.primary.get().expires_at - timezone.now()
    assert MINUTE * 58 < kept < MINUTE * 63
    assert claims_by_key.prune() == 0
    LimitKey.primary.update(expires_at=timezone.now() - MINUTE * 2)
    # As long as jobs are held, it is known since when.
    assert claims_by_key.prune() == 0
    LimitKey.primary.update(limited_since=None)
    assert claims_by_key.prune() == 1


def test_a_slow_throttle_and_many_starts_of_its_key_do_not_break_claims() -> None:
    throttle = {"limit": 1, "period": "P365000D"}
    push(queue="carrier", rate_limit={"key": "acme", "throttle": throttle})
    add(concurrency=20, number=15)
    assert len(claim()) == 16


@pytest.mark.requirement("RL-7.2", "RL-6.3")
def test_both_the_limits_of_the_queue_and_of_the_key_hold() -> None:
    queues.configure("carrier", {"concurrency": 2})
    add("acme", number=3)
    add("bravo", number=3)
    add("delta", number=3)
    found = claim()
    assert sorted(jobs().get(pk=job.id).options["limit_key"] for job in found) == ["acme", "bravo"]


def test_plain_jobs_and_jobs_with_a_limit_start_in_the_order_of_their_priority() -> None:
    plain = push(queue="carrier", priority=1)
    limited = add(priority=2)[0]
    last = push(queue="carrier")
    assert [job.id for job in claim(count=2)] == [limited.pk, plain.pk]
    assert [job.id for job in claim()] == [last.pk]


@pytest.mark.statements
def test_a_queue_without_such_jobs_is_claimed_by_one_statement() -> None:
    add(queue="other")
    push(queue="plain")
    queue_configs.current()
    with CaptureQueriesContext(connection) as captured:
        assert len(claim("plain", due=False)) == 1
    assert ["UPDATE ojs_job" in q["sql"] for q in captured if "ojs_job" in q["sql"]] == [True]


def test_a_full_queue_costs_one_query_until_it_has_room() -> None:
    add(number=3)
    (running,) = claim()
    assert may_start_soon(next_starts.seconds())
    queue_configs.latest()  # The first claim has changed the row of the queue.
    with CaptureQueriesContext(connection) as captured:
        assert claim(due=False) == []
    assert len([query for query in captured if "ojs_job" in query["sql"]]) == 1
    ack.ack(running.id)
    assert len(claim()) == 1


def test_the_maintenance_opens_held_jobs_too() -> None:
    add(number=2)
    (running,) = claim()
    assert limit_journal.open_due() == 0
    ack.ack(running.id)
    assert limit_journal.open_due() == 1
    assert not jobs().filter(hold=HELD).exists()
    assert not LimitCheck.primary.filter(due_at__lte=timezone.now()).exists()


def test_what_was_lost_from_the_journal_is_checked_again() -> None:
    add(number=2)
    (running,) = claim()
    assert claims_by_key.recheck() == 0
    ack.ack(running.id)
    LimitCheck.primary.all().delete()
    Queue.primary.update(rules=0)
    in_memory_state.reset()
    assert claims_by_key.recheck() == 1
    assert len(claim()) == 1


def test_a_queue_to_which_such_jobs_are_moved_checks_their_limits() -> None:
    add(number=2)
    queues.delete("carrier", strategy="move", target="other")
    assert len(claim("other")) == 1
    assert claim("other") == []


@pytest.mark.django_db(transaction=True)
def test_claims_at_the_same_time_never_exceed_the_limits_and_forget_no_job() -> None:
    for key in ("acme", "bravo", "delta"):
        add(key, concurrency=2, number=12)
    seen: list[int] = []

    def work(worker: int) -> int:
        done = 0
        while jobs().exclude(state="completed").exists():
            for job in fetch.fetch(["carrier"], count=3, worker_id=f"w{worker}"):
                active = jobs().filter(state="active").annotate(key=KeyOfJob()).values_list("key")
                seen.append(max((n for *_, n in active.annotate(n=Count("pk"))), default=0))
                ack.ack(job.id)
                done += 1
        return done

    assert sum(at_once([partial(work, number) for number in range(4)])) == 36
    assert max(seen) <= 2


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_job_that_was_held_while_another_one_ended_is_found() -> None:
    add(number=2)
    (running,) = claim()
    with transaction.atomic():
        # The end of the first one is not committed when another worker finds the key at its limit.
        ack.ack(running.id)
        assert elsewhere(claim_of_a_new_process)[0] == []
    assert len(claim()) == 1


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_held_job_that_was_locked_when_its_key_had_room_is_found() -> None:
    add(number=2)
    (running,) = claim()
    ack.ack(running.id)
    with transaction.atomic():
        queues.delete("carrier", strategy="move", target="other")
        assert elsewhere(claim_of_a_new_process)[0] == []
    LimitCheck.primary.update(due_at=timezone.now() - MINUTE)
    assert len(claim("other")) == 1


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_key_that_another_transaction_has_locked_delays_no_other_one() -> None:
    add("acme")
    other_job = add("bravo")[0]
    other = connection.copy()
    try:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(20305, hashtext('acme'))")
        assert [job.id for job in claim()] == [other_job.pk]
        assert may_start_soon(next_starts.seconds())
        other.rollback()
        assert len(claim()) == 1
    finally:
        other.close()


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_claim_that_finds_all_jobs_locked_by_another_claim_is_repeated_soon() -> None:
    add("acme", number=2)
    add("bravo", concurrency=9, number=9)
    with transaction.atomic():
        # The second job of the key is rejected, so the claim locks more jobs than it takes.
        assert len(claim(count=2)) == 2
        found, seconds = elsewhere(claim_of_a_new_process)
    assert found == []
    assert may_start_soon(seconds)


def test_a_paused_queue_is_not_tried_again_soon() -> None:
    add(number=2)
    assert len(claim()) == 1
    queues.pause("carrier")
    in_memory_state.reset()
    assert claim() == []
    assert next_starts.seconds() is None


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_transaction_with_an_old_snapshot_starts_no_job_with_a_limit() -> None:
    add()
    plain = push(queue="carrier")
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        assert [job.id for job in claim()] == [plain.pk]
    assert len(claim()) == 1


@pytest.mark.requirement("RL-6.1", "RL-6.2")
@together(
    ("policy", "field"),
    [
        ({"key": "a b"}, "rate_limit.key"),
        ({"key": "a" * 256}, "rate_limit.key"),
        ({"key": 5}, "rate_limit.key"),
        ({"key": "a", "concurrency": -1}, "rate_limit.concurrency"),
        ({"key": "a", "rate": {"limit": 0, "period": "PT1M"}}, "rate_limit.rate.limit"),
        ({"key": "a", "rate": {"limit": 1}}, "rate_limit.rate.period"),
        ({"key": "a", "throttle": {"limit": 1, "period": "soon"}}, "rate_limit.throttle.period"),
        ({"key": "a", "on_limit": "explode"}, "rate_limit.on_limit"),
    ],
    undo=True,
)
def test_a_policy_that_cannot_hold_is_rejected(policy: Any, field: str) -> None:
    with pytest.raises(OJSError) as raised:
        push(rate_limit=policy)
    assert raised.value.details["field"] == field


def test_http_takes_and_returns_the_policy() -> None:
    policy = {"key": "acme", "concurrency": 1, "note": "kept"}
    body = {"type": "test.job", "args": [], "options": {"queue": "carrier", "rate_limit": policy}}
    for _ in range(2):
        assert Api().post("jobs", body).ok(201)["job"]["rate_limit"] == policy
    assert len(Api().fetch("carrier", count=5)) == 1

"""A worker's session keeps plans where it can, and no claim or completion depends on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import (
    DEFAULT_DB_ALIAS,
    OperationalError,
    connection,
    connections,
    transaction,
)
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_ojs.extensions.events.models import Event
from django_ojs.operations import ack, fetch
from django_ojs.spec.errors import ClaimLost, Conflict
from django_ojs.storage.claimed_job import Claimed
from django_ojs.storage.dialects import kept_plans, postgresql
from django_ojs.storage.transitions import Claim
from tests.factories import WORKER, WorkerFactory, jobs, push, push_many
from tests.other_session import Other
from tests.worker.waiting import BOUND

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgresql]

QUEUE = "kept"
TEXT = "it's \"\\ %s 😀"


@pytest.fixture(autouse=True)
def _new_session(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # No plan is old, and no statement slow, however busy the machine is.
    monkeypatch.setattr(kept_plans, "LONGEST", 3600.0)
    monkeypatch.setattr(kept_plans, "SLOW", 3600.0)
    # Another test may have put something on the connection that sees its statements.
    connection.close()
    WorkerFactory()
    yield
    connection.close()


def claim(count: int = 1, *, registered: bool = True) -> list[Claimed]:
    return fetch.fetch([QUEUE], count=count, worker_id=WORKER, due=False, registered=registered)


def kept() -> dict[str, Any]:
    """Return when each statement of this session was prepared, by its name."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT name, prepare_time FROM pg_prepared_statements")
        return dict(cursor.fetchall())


def complete(claimed: list[Claimed], result: Any = None) -> set[Any]:
    return ack.ack_batch(WORKER, [(job.id, job.run, result) for job in claimed])


def execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def test_the_claims_of_a_worker_have_one_plan_for_any_values() -> None:
    expected = push_many(5, queue=QUEUE, args=["it's \"\\ %s 😀"])
    found = [*claim(3), *claim(1), *claim(9)]
    assert [job.id for job in found] == [job.pk for job in expected]
    assert claim() == []
    assert len(kept()) == 1
    with connection.cursor() as cursor:
        cursor.execute("SELECT generic_plans, custom_plans FROM pg_prepared_statements")
        assert cursor.fetchone() == (4, 0)


def test_a_job_is_the_same_as_by_a_statement_that_is_planned_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    push_many(2, queue=QUEUE, args=[1, "two", None], meta={"a": ["ä"]}, priority=3, timeout_ms=5)
    with monkeypatch.context() as each_time:
        each_time.setattr(postgresql, "_kept", lambda *_, **__: None)
        (planned,) = claim()
    assert not kept()
    (job,) = claim()
    assert kept()
    differs = {"id", "created_at", "enqueued_at", "started_at", "lease_until"}
    for name, value in vars(planned).items():
        other = vars(job)[name]
        assert type(other) is type(value)
        assert name in differs or other == value
    assert job.started_at is not None
    assert job.started_at.utcoffset() is not None


def test_the_bytes_and_the_best_jobs_are_those_of_a_plain_claim() -> None:
    low = push(queue=QUEUE, args=["x" * 2000])
    high = push(queue=QUEUE, args=["x" * 2000], priority=5)
    middle = push(queue=QUEUE, args=["x" * 2000], priority=1)
    found = fetch.fetch(
        [QUEUE], count=3, worker_id=WORKER, due=False, registered=True, max_bytes=5000
    )
    assert [job.id for job in found] == [high.pk, middle.pk]
    assert [job.id for job in claim(3)] == [low.pk]
    assert kept()


def test_a_web_process_prepares_once_it_repeats_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_plans, "REPEATED_WITHIN", 3600.0)
    more = kept_plans.REPEATED + 5
    expected = push_many(more, queue=QUEUE)
    found = []
    for count in range(1, more + 1):
        found += claim(registered=False)
        assert bool(kept()) is (count > kept_plans.REPEATED)
    assert [job.id for job in found] == [job.pk for job in expected]
    assert claim(registered=False) == []
    # The connection of a next request that is a new one repeats nothing.
    connection.close()
    claim(registered=False)
    assert not kept()


def test_a_web_process_that_repeats_completions_keeps_their_plan_and_their_fences(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept_plans, "REPEATED_WITHIN", 3600.0)
    push_many(kept_plans.REPEATED + 5, queue=QUEUE)
    claimed = claim(kept_plans.REPEATED + 5)
    before = kept()
    for job in claimed[:-1]:
        own = Claim(worker_id=WORKER, attempt=job.attempt, run=job.run)
        for wrong in ({"worker_id": "another"}, {"attempt": 9}, {"run": 9}):
            with pytest.raises(ClaimLost):
                ack.ack(job.id, claim=replace(own, **wrong), result=TEXT)
        done = ack.ack(job.id, claim=own, result=TEXT)
        assert (done.state, done.result, done.worker_id) == ("completed", TEXT, WORKER)
        with pytest.raises(Conflict):
            ack.ack(job.id, claim=own)
    assert len(kept()) == len(before) + 1
    # Another claim is another statement, and the plan of one does not serve it.
    assert ack.ack(claimed[-1].id).result is None
    assert len(kept()) == len(before) + 2


def test_a_worker_without_an_id_gets_jobs_without_a_kept_plan() -> None:
    expected = push_many(kept_plans.REPEATED + 5, queue=QUEUE)
    found = [job for _ in expected for job in fetch.fetch([QUEUE], due=False)]
    assert [job.id for job in found] == [job.pk for job in expected]
    assert not kept()


def test_a_web_process_that_claims_now_and_then_prepares_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept_plans, "REPEATED_WITHIN", 0.0)
    for _ in range(kept_plans.REPEATED * 2):
        claim(registered=False)
    assert not kept()


def test_whoever_fetches_over_http_or_in_a_transaction_prepares_nothing() -> None:
    push_many(3, queue=QUEUE)
    assert len(claim(registered=False)) == 1
    assert not kept()
    with transaction.atomic():
        assert len(claim()) == 1
        transaction.set_rollback(True)
    with CaptureQueriesContext(connection) as queries:
        assert len(claim()) == 1
    assert any("UPDATE ojs_job" in query["sql"] for query in queries)
    assert not kept()


def limited(count: int = 1) -> list[Claimed]:
    push_many(count, queue=QUEUE, rate_limit={"key": "k", "concurrency": 100})
    return claim(count)


def test_the_statements_of_a_claim_with_a_limit_are_kept_too() -> None:
    limited()  # The process learns that the queue has limits.
    found = limited(3)
    assert len(found) == 3
    texts = kept()
    assert len(texts) > 1
    assert len(limited(2)) == 2
    assert kept() == texts
    with connection.cursor() as cursor:
        cursor.execute("SELECT sum(custom_plans) FROM pg_prepared_statements")
        assert cursor.fetchone() == (0,)


def test_what_follows_in_the_transaction_is_planned_as_ever() -> None:
    def settings() -> list[str]:
        found = []
        for name in ("enable_seqscan", "plan_cache_mode"):
            with connection.cursor() as cursor:
                cursor.execute(f"SHOW {name}")
                found.append(cursor.fetchone()[0])
        return found

    before = settings()
    with transaction.atomic():
        execute("SELECT 1")
        found = kept_plans.rows(
            connections[DEFAULT_DB_ALIAS],
            "SELECT %(text)s, %(texts)s::text[], 'ab' LIKE 'a%%'",
            {"text": TEXT, "texts": [TEXT, "a,b", "", "NULL"]},
            is_in_transaction=True,
        )
        assert found == [(TEXT, [TEXT, "a,b", "", "NULL"], True)]
        assert settings() == before


def test_after_a_session_lost_its_plans_a_claim_with_a_limit_is_repeated() -> None:
    limited()
    assert len(limited()) == 1
    push_many(2, queue=QUEUE, rate_limit={"key": "k", "concurrency": 100})
    execute("DEALLOCATE ALL")
    assert len(claim()) == 1
    assert len(claim()) == 1
    assert not kept()


def by_web_process(worker_id: str | None) -> list[Claimed]:
    push(queue=QUEUE, rate_limit={"key": "k", "concurrency": 100})
    return fetch.fetch([QUEUE], worker_id=worker_id, due=False)


@pytest.mark.parametrize("worker_id", [WORKER, None])
def test_a_web_process_keeps_the_statements_of_claims_with_a_limit_once_it_repeats_them(
    worker_id: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_plans, "REPEATED_WITHIN", 3600.0)
    assert len(by_web_process(worker_id)) == 1
    assert not kept()
    for _ in range(kept_plans.REPEATED):
        assert len(by_web_process(worker_id)) == 1
    assert bool(kept()) is (worker_id is not None)
    execute("DEALLOCATE ALL")
    assert len(by_web_process(worker_id)) == 1


def test_a_claim_with_a_limit_in_a_transaction_of_the_caller_prepares_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept_plans, "REPEATED_WITHIN", 3600.0)
    for _ in range(kept_plans.REPEATED * 2):
        with transaction.atomic():
            assert len(by_web_process(WORKER)) == 1
    assert not kept()


def recorded() -> list[str]:
    of_jobs = Event.primary.filter(type__startswith="job.")
    return list(of_jobs.order_by("pk").values_list("type", flat=True))


@override_settings(OJS={**settings.OJS, "KEEP_EVENTS": ["job.started", "job.completed"]})
@pytest.mark.parametrize("forgets", [False, True], ids=["", "the session has lost its plans"])
def test_claims_and_completions_that_an_extension_hears_of_are_kept_too(*, forgets: bool) -> None:
    push_many(2, queue=QUEUE)
    assert len(complete(claim())) == 1
    texts = kept()
    assert len(texts) == 3
    if forgets:
        execute("DEALLOCATE ALL")
    found = claim()
    if forgets:
        assert not kept()
    assert len(complete(found)) == 1
    assert kept() == ({} if forgets else texts)
    assert recorded() == ["job.started", "job.completed"] * 2


@override_settings(OJS={**settings.OJS, "KEEP_EVENTS": ["job.started", "job.completed"]})
def test_what_an_extension_hears_of_is_undone_with_the_transaction_of_the_caller() -> None:
    push_many(3, queue=QUEUE)
    held = claim()
    before = kept()
    with transaction.atomic():
        assert len(claim()) == 1
        assert len(complete(held)) == 1
        transaction.set_rollback(True)
    assert kept() == before
    assert recorded() == ["job.started"]
    assert jobs().filter(state="available").count() == 2
    assert len(complete(held)) == 1


def test_a_session_behind_a_pooler_prepares_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psycopg.ConnectionInfo, "backend_pid", property(lambda _: 1))
    push_many(2, queue=QUEUE)
    assert len(claim()) == 1
    assert len(claim()) == 1
    assert not kept()


def test_a_plan_is_made_again_when_it_is_old_or_was_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    push_many(6, queue=QUEUE)
    claim()
    first = kept()
    claim()
    assert kept() == first
    monkeypatch.setattr(kept_plans, "SLOW", 0.0)
    monkeypatch.setattr(kept_plans, "SHORTEST", 0.0)
    claim()
    assert kept() == first
    claim()
    second = kept()
    assert second.keys() == first.keys()
    assert second != first
    monkeypatch.setattr(kept_plans, "SLOW", 3600.0)
    claim()
    third = kept()
    monkeypatch.setattr(kept_plans, "LONGEST", 0.0)
    assert len(claim()) == 1
    assert kept() != third


def test_a_plan_that_is_slow_and_new_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_plans, "SHORTEST", 3600.0)
    monkeypatch.setattr(kept_plans, "LONGEST", 3600.0)
    push_many(6, queue=QUEUE)
    claim()
    first = kept()
    # On a busy machine fast and slow ones alternate.
    for slow in (0.0, 3600.0, 0.0, 0.0, 0.0):
        monkeypatch.setattr(kept_plans, "SLOW", slow)
        assert len(claim()) == 1
    assert kept() == first


@pytest.mark.parametrize(
    "change",
    [
        "DEALLOCATE ALL",
        "ALTER TABLE ojs_job ALTER COLUMN type TYPE varchar(254)",
    ],
    ids=["the session has lost it", "a column has another type"],
)
def test_a_claim_whose_statement_is_gone_is_planned_as_before(change: str) -> None:
    push_many(3, queue=QUEUE)
    assert len(claim()) == 1
    execute(change)
    try:
        assert len(claim()) == 1
        assert len(claim()) == 1
    finally:
        execute("ALTER TABLE ojs_job ALTER COLUMN type TYPE varchar(255)")


def test_a_server_that_prepares_nothing_gets_plain_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    original = kept_plans._prepared
    monkeypatch.setattr(
        kept_plans,
        "_prepared",
        lambda *given: (original(*given)[0], b"PREPARE nothing", original(*given)[2]),
    )
    push_many(2, queue=QUEUE)
    assert len(claim()) == 1
    assert len(claim()) == 1


def test_another_error_of_a_claim_is_raised_and_leaves_the_session_usable() -> None:
    push_many(3, queue=QUEUE)
    assert len(claim()) == 1
    execute("SET lock_timeout = '30ms'")
    with Other() as other:
        # The transaction ends with the session.
        other.do(lambda: transaction.set_autocommit(False)).result(BOUND)
        other.do(lambda: execute("LOCK TABLE ojs_job")).result(BOUND)
        with pytest.raises(OperationalError) as caught:
            claim()
    assert getattr(caught.value.__cause__, "sqlstate", None) == "55P03"
    execute("RESET lock_timeout")
    assert len(claim()) == 1
    assert len(kept()) == 1
    assert jobs().filter(state="active").count() == 2


def test_a_new_session_prepares_again() -> None:
    push_many(2, queue=QUEUE)
    assert len(claim()) == 1
    connection.close()
    assert not kept()
    assert len(claim()) == 1
    assert len(kept()) == 1


def test_completions_have_a_plan_of_their_own_and_their_fence() -> None:
    push_many(4, queue=QUEUE)
    claimed = claim(4)
    lost, taken, *held = claimed
    jobs().filter(pk=lost.id).update(run=lost.run + 1)
    jobs().filter(pk=taken.id).update(worker_id="another")
    assert complete(claimed, {"text": TEXT}) == {job.id for job in held}
    assert len(kept()) == 2
    done = jobs().filter(state="completed")
    assert {job.pk for job in done} == {job.id for job in held}
    assert {job.result["text"] for job in done} == {TEXT}
    assert complete(held) == set()
    execute("DEALLOCATE ALL")
    assert complete(claim(1)) == set()
    push(queue=QUEUE)
    assert len(complete(claim(1))) == 1


def test_a_completion_in_a_transaction_prepares_nothing() -> None:
    push(queue=QUEUE)
    with transaction.atomic():
        assert len(complete(claim())) == 1
    assert not kept()


def test_a_kept_plan_reads_no_table_from_end_to_end() -> None:
    # So many pages that the planner would read them all, for the hundred jobs it expects.
    push_many(1000, queue="other", args=["x" * 800])
    push_many(2, queue=QUEUE)
    execute("ANALYZE ojs_job")
    complete(claim(1))
    execute("SET plan_cache_mode = force_generic_plan")
    with connection.cursor() as cursor:
        cursor.execute("SELECT name, parameter_types::text[] FROM pg_prepared_statements")
        for name, types in cursor.fetchall():
            values = ", ".join("'[]'" if each == "text" else "'1'" for each in types)
            cursor.execute(f"EXPLAIN EXECUTE {name} ({values})")
            plan = "\n".join(line for (line,) in cursor.fetchall())
            assert "ojs_job_pkey" in plan
            assert "Seq Scan on ojs_job" not in plan

"""A worker's session keeps the plan of its claims, where it can, and no claim depends on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext

from django_ojs.operations import fetch
from django_ojs.storage.claims import Claimed
from django_ojs.storage.dialects import postgresql
from tests.factories import WORKER, jobs, push, push_many, worker
from tests.other_session import PATIENCE, Other

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgresql]

QUEUE = "kept"


@pytest.fixture(autouse=True)
def _new_session() -> Iterator[None]:
    # Another test may have put something on the connection that sees its statements.
    connection.close()
    worker()
    yield
    connection.close()


def claim(count: int = 1, *, registered: bool = True) -> list[Claimed]:
    return fetch.fetch([QUEUE], count=count, worker_id=WORKER, due=False, registered=registered)


def kept() -> dict[str, Any]:
    """Return when each statement of this session was prepared, by its name."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT name, prepare_time FROM pg_prepared_statements")
        return dict(cursor.fetchall())


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
    monkeypatch.setattr(postgresql.PostgreSQL, "keeps_plans", False)
    (planned,) = claim()
    assert not kept()
    monkeypatch.setattr(postgresql.PostgreSQL, "keeps_plans", True)
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


def test_a_session_behind_a_pooler_prepares_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psycopg.ConnectionInfo, "backend_pid", property(lambda _: 1))
    push_many(2, queue=QUEUE)
    assert len(claim()) == 1
    assert len(claim()) == 1
    assert not kept()


def test_a_plan_is_made_again_when_it_is_old_or_was_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    from django_ojs.storage.dialects import kept_plans

    monkeypatch.setattr(kept_plans, "LONGEST", 3600.0)
    # Never slow, however busy the machine is.
    monkeypatch.setattr(kept_plans, "SLOW", 3600.0)
    push_many(6, queue=QUEUE)
    claim()
    first = kept()
    claim()
    assert kept() == first
    monkeypatch.setattr(kept_plans, "SLOW", 0.0)
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
    from django_ojs.storage.dialects import kept_plans

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
        other.do(lambda: transaction.set_autocommit(False)).result(PATIENCE)
        other.do(lambda: execute("LOCK TABLE ojs_job")).result(PATIENCE)
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

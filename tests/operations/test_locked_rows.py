"""A session that keeps the row of one running job locked holds up nothing but that job.

SQLite has one writer, and no locks of rows: there such a session holds up every writer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, connections, transaction

from django_ojs.models import Job, Worker
from django_ojs.models.attempt import AttemptOutcome
from django_ojs.operations import ack, beat, cancel, fail, fetch
from django_ojs.operations.jobs import bulk
from django_ojs.operations.maintenance import timeouts
from django_ojs.operations.workers import rescue
from django_ojs.spec.errors import Conflict
from django_ojs.storage import database, lock_holders
from django_ojs.storage.claimed_job import Claimed
from django_ojs.storage.dialects.server import LockHolder
from tests import factories
from tests.factories import BOOM, HOUR, WORKER, age
from tests.http.api import Api
from tests.other_session import open_transaction
from tests.worker.waiting import BOUND

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.postgresql,
    pytest.mark.mariadb,
]

api = Api()


def lock(job: Claimed | Job) -> None:
    Job.objects.select_for_update().get(pk=job.pk)


@contextmanager
def none_waits() -> Iterator[None]:
    """Fail if a statement of this thread waits for a lock for as long as a person would notice."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SET lock_timeout = '5s'")
        else:
            cursor.execute("SET SESSION innodb_lock_wait_timeout = 5")
    try:
        yield
    finally:
        connection.close()


def state(job: Claimed | Job) -> str:
    return factories.read(job.pk).state


@pytest.fixture
def two() -> Iterator[tuple[Claimed, Claimed]]:
    """Return two running jobs; another session has locked the row of the first."""
    locked, free = sorted((factories.active(), factories.active()), key=lambda job: job.id)
    with open_transaction(lambda: lock(locked)), none_waits():
        yield locked, free


def test_a_group_of_completions_passes_by_a_locked_row(two: tuple[Claimed, Claimed]) -> None:
    locked, free = two
    assert ack.ack_batch(WORKER, [(job.id, job.run, 1) for job in two]) == {free.id}
    assert (state(locked), state(free)) == ("active", "completed")


def test_a_group_of_failures_passes_by_a_locked_row(two: tuple[Claimed, Claimed]) -> None:
    locked, free = two
    stored = fail.fail_batch(WORKER, [(job, BOOM, AttemptOutcome.FAILED) for job in two])
    assert [*stored] == [(free.id, free.run)]
    assert (state(locked), state(free)) == ("active", "retryable")


def test_a_return_to_the_queue_passes_by_a_locked_row(two: tuple[Claimed, Claimed]) -> None:
    locked, free = two
    assert rescue.give_back([(job.id, job.run) for job in two], worker_id=WORKER) == 1
    assert (state(locked), state(free)) == ("active", "available")


def test_a_heartbeat_is_stored_and_extends_the_other_leases(two: tuple[Claimed, Claimed]) -> None:
    locked, free = two
    before = factories.read(free.id).lease_until
    answer = beat.beat(WORKER, holding=[job.id for job in two], visibility_timeout=HOUR * 3)
    assert (answer.jobs_extended, answer.locked, answer.lost) == (1, {locked.id}, frozenset())
    assert factories.read(free.id).lease_until > before
    assert Worker.objects.filter(pk=WORKER).exists()


def test_a_heartbeat_adopts_the_others(two: tuple[Claimed, Claimed]) -> None:
    nobodys = factories.active(worker_id=None)
    other = factories.active(worker_id=None)
    with open_transaction(lambda: lock(other)):
        answer = beat.beat("new", holding=[nobodys.id, other.id])
    assert answer.jobs_extended == 1
    assert factories.read(nobodys.id).worker_id == "new"


def test_a_bulk_operation_reports_a_locked_row_and_changes_the_others(
    two: tuple[Claimed, Claimed],
) -> None:
    locked, free = two
    found = bulk.cancel_all([job.id for job in two])
    assert (found.succeeded, found.failed) == (1, 1)
    assert found.errors[0].job_id == locked.id
    assert "locked" in found.errors[0].error
    assert state(free) == "cancelled"


def test_timeouts_pass_by_a_locked_row() -> None:
    locked, free = factories.active(), factories.active()
    age([locked.id, free.id], HOUR)
    with open_transaction(lambda: lock(locked)), none_waits(), database.passing_by():
        assert timeouts.enforce() == 1
    assert (state(locked), state(free)) == ("active", "retryable")


ONE_JOB: dict[str, Callable[[str], Any]] = {
    "ack": lambda key: api.post("workers/ack", {"job_id": key}),
    "nack": lambda key: api.post("workers/nack", {"job_id": key, "error": {"code": "x"}}),
    "requeue": lambda key: api.post(
        "workers/nack", {"job_id": key, "error": {"code": "x"}, "requeue": True}
    ),
    "cancel": lambda key: api.delete(f"jobs/{key}"),
    "progress": lambda key: api.post("workers/progress", {"job_id": key, "progress": 0.5}),
}


@pytest.mark.parametrize("verb", ONE_JOB)
def test_over_http_a_locked_job_answers_503_soon(verb: str, two: tuple[Claimed, Claimed]) -> None:
    locked, free = two
    answer = ONE_JOB[verb](str(locked.id))
    assert answer.error(503, "backend_error", job_id=str(locked.id))["retryable"] is True
    assert int(answer.headers["Retry-After"]) >= 1
    assert state(locked) == "active"
    assert ONE_JOB[verb](str(free.id)).status < 300


def test_over_http_a_beat_leaves_out_what_it_could_not_extend(two: tuple[Claimed, Claimed]) -> None:
    _, free = two
    keys = [str(job.id) for job in two]
    answer = api.post("workers/heartbeat", {"worker_id": WORKER, "active_jobs": keys}).ok()
    assert (answer["jobs_extended"], answer["jobs_lost"]) == ([str(free.id)], [])


def test_over_http_a_push_that_would_replace_a_locked_job_answers_503() -> None:
    unique = {"key": ["type"], "on_conflict": "replace"}
    first = api.push(type="unique.one", unique=unique)["id"]
    assert api.fetch()
    with open_transaction(lambda: lock(factories.read(UUID(first)))), none_waits():
        answer = api.post("jobs", {"type": "unique.one", "args": [], "unique": unique})
        assert answer.status == 503
        assert "Retry-After" in answer.headers
    assert state(factories.read(UUID(first))) == "active"


def test_a_job_that_lapses_while_its_row_is_locked_is_left_to_its_worker() -> None:
    locked, free = factories.active(), factories.active()
    for job in (locked, free):
        age(job.id, HOUR)
    check = rescue.LapseCheck()
    with factories.steady():
        with open_transaction(lambda: lock(locked)):
            assert check.lapse() == 1
        # Its worker could not extend the lease, and gets the time for it.
        assert check.lapse() == 0
        assert (state(locked), state(free)) == ("active", "available")
        again = beat.beat(WORKER, holding=[locked.id], visibility_timeout=HOUR)
        assert (again.jobs_extended, again.locked) == (1, frozenset())
        assert rescue.LapseCheck().lapse() == 0


def test_the_session_that_holds_a_row_is_named(
    two: tuple[Claimed, Claimed], monkeypatch: pytest.MonkeyPatch
) -> None:
    locked, _ = two
    if connection.vendor != "postgresql":
        pytest.skip("other servers do not show it")
    values = {"keys": database.dialect().ids([locked.id])}
    (holder,) = database.dialect().read(connection, LockHolder, values)
    assert (holder.jobs, holder.job) == (1, locked.id)
    assert str(holder.pid) in holder.name
    assert lock_holders.lasting() == []
    monkeypatch.setattr(lock_holders, "LOCKED_FOR", timedelta(0))
    assert lock_holders.lasting() == [holder]


def _id(job: Claimed) -> UUID:
    return job.id


def test_no_deadlock_reaches_a_transaction_that_cancels_several_running_jobs() -> None:
    rounds, together = 100, 4
    errors: list[BaseException] = []
    factories.push_many(rounds * together, queue="default")
    groups = [fetch.fetch(["default"], count=together, worker_id=WORKER) for _ in range(rounds)]
    assert {len(group) for group in groups} == {together}
    arrived = threading.Barrier(2)

    def site() -> None:
        try:
            for group in groups:
                with transaction.atomic():
                    # Against the order of the completions, which begin when it has the first.
                    for number, job in enumerate(sorted(group, key=_id, reverse=True)):
                        with suppress(Conflict):
                            cancel.cancel(job.id)
                        if not number:
                            arrived.wait(BOUND)
        except BaseException as error:
            errors.append(error)
            arrived.abort()
        finally:
            connections.close_all()

    thread = threading.Thread(target=site)
    thread.start()
    try:
        for group in groups:
            arrived.wait(BOUND)
            ack.ack_batch(WORKER, [(job.id, job.run, None) for job in group])
    except threading.BrokenBarrierError:
        pass
    thread.join(BOUND)
    assert errors == []
    ended = Job.objects.values_list("state", flat=True)
    assert set(ended) <= {"completed", "cancelled"}

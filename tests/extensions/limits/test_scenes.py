"""Processes that know limits beside some that do not, and limits that come and go under load."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction

from django_ojs.extensions.limits.models import OPEN
from django_ojs.models import Attempt, Job, Queue
from django_ojs.operations import queues
from django_ojs.storage import queue_configs
from example_project.demo import checks
from example_project.demo.snapshot import Period
from tests.extensions.limits.producer import KEYS, policy
from tests.factories import jobs, jobs_of_key, push, push_many
from tests.other_session import Other, open_transaction
from tests.worker.acceptance.conftest import Start, start
from tests.worker.acceptance.ledger import ALIASES, becomes
from tests.worker.processes import Tree
from tests.worker.waiting import BOUND, eventually

__all__ = ["start"]

pytestmark = [pytest.mark.django_db(transaction=True, databases=ALIASES), pytest.mark.slow]

QUEUE = "carrier"
OLD: dict[str, Any] = {
    "OJS_TEST_APPS": json.dumps(["tests.taken_out.TakenOut"]),
    "OJS_TEST_TAKEN_OUT": "limits by key,limits of queues",
}
PRODUCER = ("-m", "tests.extensions.limits.producer")


def produce(start: Start, number: int, how: str, **variables: Any) -> Tree:
    return start(QUEUE, str(number), how, program=PRODUCER, **variables)


def worker(start: Start, **variables: Any) -> Tree:
    """Start two processes that together would run eight jobs at once."""
    # On a busy machine a worker must not count as dead: its jobs would run again, and rightly.
    size = ("--processes", "2", "--threads", "4")
    beat = {"HEARTBEAT_INTERVAL": 5}
    return start("--queues", f"{QUEUE},other", *size, ojs=beat, **variables)


def number_in(*states: str) -> int:
    return jobs().filter(queue=QUEUE, state__in=states).count()


def periods(found: Any) -> list[Period]:
    """Return when these jobs ran. A worker may have given one back before it began."""
    assert not Attempt.objects.filter(job_id__in=found.values("pk")).exists()
    return [
        Period(started_at=_moment(began), ended_at=_moment(ended))
        for began, ended in found.values_list("result", flat=True)
    ]


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def check_keys(*keys: str) -> None:
    for key in keys or KEYS:
        assert checks.most_at_once(periods(jobs_of_key(key))) == 1


def all_done(number: int) -> bool:
    return number_in("completed") == number == number_in(*("completed", "available", "active"))


# --- old and new ------------------------------------------------------------------------------


@pytest.mark.smoke
@pytest.mark.parametrize(("how", "number"), [("api", 24), ("sql", 12)])
def test_a_producer_that_knows_no_limits_beside_a_new_worker(
    how: str, number: int, start: Start
) -> None:
    new = worker(start).ready(2)
    assert produce(start, number, how, **OLD).ends() == 0
    eventually(partial(all_done, number), f"{number} jobs are done: {new.log}")
    assert sum(jobs_of_key(key).count() for key in KEYS) == 12
    check_keys()


@pytest.mark.smoke
def test_a_worker_that_knows_no_limits_beside_a_new_producer(start: Start) -> None:
    old = worker(start, **OLD).ready(2)
    push(queue=QUEUE, type="worker.quick", args=[1])
    eventually(lambda: number_in("completed") == 1, "it takes plain jobs of a plain queue")
    push_many(4, queue=QUEUE, type="worker.rest", args=[0.01], rate_limit=policy(0))
    push(queue=QUEUE, type="worker.quick", args=[1])
    old.says(f"No job of the queue {QUEUE} is claimed: it has rules of extensions that are not")
    # It goes on with the other queue, and so has looked at this one again.
    for other in push_many(3, queue="other", type="worker.quick", args=[1]):
        becomes(other, "completed")
    waiting = jobs().filter(queue=QUEUE, state="available", run=0)
    assert waiting.count() == 5
    assert waiting.filter(hold=OPEN).count() == 4
    worker(start).ready(2)
    eventually(partial(all_done, 6), "a worker that knows the limits takes all of them")
    check_keys(KEYS[0])


# --- a limit that comes and goes --------------------------------------------------------------


def _in_force(limit: int) -> tuple[set[UUID], datetime]:
    """Give the queue a limit until some jobs have started under it. Return them, and till when."""
    queues.configure(QUEUE, {"concurrency": limit})
    wait_for_older_transactions()
    started = jobs().filter(queue=QUEUE, run__gt=0)
    before = set(started.values_list("pk", flat=True))
    eventually(
        lambda: started.count() > len(before) + 3 * limit or not number_in("available", "active"),
        "jobs start under the limit",
    )
    under = set(started.values_list("pk", flat=True)) - before
    ended = _moment(time.monotonic())
    queues.configure(QUEUE, {"concurrency": None})
    return under, ended


def wait_for_older_transactions() -> None:
    """Wait for the claims that are going on: they start what they have found before."""
    if connection.vendor == "sqlite":
        return  # There, one transaction writes at a time.
    if connection.vendor == "mysql":
        older = _transactions()
        # The server looks again only when nobody has asked for a tenth of a second.
        eventually(lambda: not older & _transactions(), "the older ones are over", pause=0.15)
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (now,) = cursor.fetchone()

        def are_over() -> bool:
            cursor.execute("SELECT pg_stat_clear_snapshot()")
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND pid <> pg_backend_pid() AND xact_start < %s",
                [now],
            )
            return cursor.fetchone() == (0,)

        eventually(are_over, "the transactions are over that began before")


def _transactions() -> set[tuple[object, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT trx_id, trx_started FROM information_schema.innodb_trx"
            " WHERE trx_mysql_thread_id <> CONNECTION_ID()"
        )
        return set(cursor.fetchall())


@pytest.mark.smoke
def test_the_rules_of_a_queue_come_and_go_under_load(start: Start) -> None:
    number, limit = 120, 2
    new = worker(start).ready(2)
    producers = [produce(start, number // 2, "api") for _ in range(2)]
    windows = []
    while any(each.process.poll() is None for each in producers) or number_in("available"):
        windows.append(_in_force(limit))
        assert not Queue.primary.get(pk=QUEUE).rules & 1 << 12
        seen = number_in("completed")
        # Without a limit for a while.
        eventually(
            lambda seen=seen: (
                number_in("completed") > seen + limit  # type: ignore[misc]  # of the loop
                or not number_in("available", "active")
            ),
            "jobs run without a limit",
        )
    assert [each.ends() for each in producers] == [0, 0]
    eventually(partial(all_done, number), f"{number} jobs are done: {new.log}")
    check_keys()
    ran = periods(jobs().filter(queue=QUEUE))
    under = [
        each
        for started, ended in windows
        for each in periods(jobs().filter(pk__in=started))
        if each.started_at < ended
    ]
    assert len(under) > limit
    for each in under:
        beside = [one for one in ran if one.started_at <= each.started_at < one.ended_at]
        assert len(beside) <= limit


# --- an open transaction ----------------------------------------------------------------------


@pytest.mark.postgresql
@pytest.mark.parametrize("has_row", [True, False])
def test_a_limited_job_of_an_open_transaction_stops_nobody(has_row: bool, start: Start) -> None:
    if has_row:
        queues.configure(QUEUE, {"max_attempts": 3})
    late: list[Job] = []

    def store() -> None:
        late.append(push(queue=QUEUE, type="worker.rest", args=[0.01], rate_limit=policy(0)))

    new = worker(start).ready(2)
    with open_transaction(store) as commit, Other() as other:
        # Jobs of the same key, of another one, and plain ones.
        assert produce(start, 16, "api").ends() == 0
        eventually(partial(all_done, 16), f"the others are done: {new.log}")
        # Nobody has locked the row of the queue, and its configuration may change.
        with transaction.atomic():
            list(Queue.primary.filter(pk=QUEUE).select_for_update(nowait=True))
        other.do(partial(queues.configure, QUEUE, {"concurrency": 2})).result(BOUND)
        assert number_in("completed") == 16
        commit()
    becomes(late[0], "completed")
    check_keys()


# --- what comes from the default policy -------------------------------------------------------


@pytest.fixture
def default_policy() -> Iterator[None]:
    queues.configure_default({"concurrency": 2})
    yield
    queues.configure_default({"concurrency": None})


@pytest.mark.smoke
def test_a_queue_without_a_row_has_the_limit_of_the_default_policy(
    start: Start, default_policy: None
) -> None:
    push_many(20, queue=QUEUE, type="worker.rest", args=[0.01])
    assert not Queue.primary.filter(pk=QUEUE).exists()
    new = worker(start).ready(2)
    eventually(partial(all_done, 20), f"20 jobs are done: {new.log}")
    # The maintenance may have given it a row by now.
    assert not Queue.primary.filter(pk=QUEUE).exclude(rules=0).exists()
    assert checks.most_at_once(periods(jobs().filter(queue=QUEUE))) <= 2
    # A limited job gives the queue a row, and it still has what it inherits.
    push_many(12, queue=QUEUE, type="worker.rest", args=[0.01])
    push_many(4, queue=QUEUE, type="worker.rest", args=[0.01], rate_limit=policy(0))
    eventually(partial(all_done, 36), f"36 jobs are done: {new.log}")
    assert Queue.primary.get(pk=QUEUE).rules == 1 << 14
    queue_configs.refresh()
    assert checks.most_at_once(periods(jobs().filter(queue=QUEUE))) <= 2
    check_keys(KEYS[0])

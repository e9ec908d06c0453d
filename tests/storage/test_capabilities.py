"""PostgreSQL as one of its relatives: each feature that can be missing is switched off.

The tests of the operations pass so too: see `OJS_TEST_CAPABILITIES` in docs/explanation/testing.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

import django_ojs as ojs
from django_ojs import checks
from django_ojs.operations import ack, beat, fetch, limit_checks, queues
from django_ojs.operations.maintenance import lease
from django_ojs.operations.workers import rescue
from django_ojs.spec.errors import DuplicateJob, QueueFull
from django_ojs.storage import database
from django_ojs.storage.figures import counts
from tests.command_line.run import ojs as command
from tests.databases import NONE
from tests.factories import own_connections, push, read, silence
from tests.http.api import Api
from tests.worker.waiting import BOUND

pytestmark = [
    pytest.mark.postgresql,
    pytest.mark.django_db(transaction=True),
    pytest.mark.capabilities,
]

BOUNDED: dict[str, Any] = {"backpressure": {"max_depth": 20}}
UNIQUE = {"keys": ["args"]}
#: What no statement may have, once all is off.
OFF = ("advisory", "call ojs_", "ojs_admit", "ojs_spend", "pg_stat_activity", "pg_notify", "xmin")


def schema() -> set[tuple[str, ...]]:
    """Return the routines, triggers, tables and sequences of django_ojs."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 'routine', proname, md5(prosrc) FROM pg_proc WHERE proname LIKE 'ojs%%'"
            " UNION ALL SELECT 'trigger', tgname, tgtype::text FROM pg_trigger"
            " WHERE NOT tgisinternal UNION ALL SELECT 'table', relname, relkind::text"
            " FROM pg_class WHERE relname LIKE 'ojs%%'"
        )
        return set(cursor.fetchall())


@pytest.fixture
def lacking() -> Iterator[dict[str, bool]]:
    """Switch everything off as an operator does it, and on again: the schema is as it was then."""
    before = schema()
    try:
        with override_settings(OJS=NONE):
            call_command("migrate", "django_ojs", verbosity=0)
            yield NONE
    finally:
        call_command("migrate", "django_ojs", verbosity=0)
    assert schema() == before


def at_once(number: int, task: Any) -> list[Any]:
    """Run a task in so many threads, together; return the results without None."""
    start = Barrier(number)

    def run(index: int) -> Any:
        with own_connections():
            start.wait(BOUND)
            with suppress(DuplicateJob, QueueFull):
                return task(index)

    with ThreadPoolExecutor(number) as pool:
        return [each for each in pool.map(run, range(number)) if each is not None]


def test_a_site_with_everything_off(lacking: dict[str, bool]) -> None:
    queues.configure("small", BOUNDED)
    queues.configure("shared", {"tenant_limits": {"max_queue_depth": 3}})
    with CaptureQueriesContext(connection) as sent:
        first = ojs.enqueue("a.job", [1])
        ojs.enqueue_batch([ojs.request("a.job", [n]) for n in range(50)])
        ojs.enqueue("a.job", [1], queue="one", unique=UNIQUE)
        for _ in range(3):
            push(queue="limited", rate_limit={"key": "acme", "concurrency": 1})
            push(queue="shared", meta={"tenant_id": "acme"})
        with pytest.raises(QueueFull), transaction.atomic():
            push(queue="shared", meta={"tenant_id": "acme"})
        with pytest.raises(DuplicateJob):
            ojs.enqueue("a.job", [1], queue="one", unique=UNIQUE)
        for n in range(20):
            ojs.enqueue("a.job", [n], queue="small")
        with pytest.raises(QueueFull):
            ojs.enqueue("a.job", [21], queue="small")
        assert lease.take("keeper")
        beat.beat("w")
        (claimed,) = fetch.fetch(["limited"], count=9, worker_id="w")
        assert fetch.fetch(["limited"], count=9, worker_id="w") == []
        ack.ack(claimed.id)
        limit_checks.open_due()
        (_next,) = fetch.fetch(["limited"], count=9, worker_id="w")
        # Its session is not known, and its heartbeats are: the jobs come back by their silence.
        (taken,) = fetch.fetch(["default"], worker_id="w")
        assert taken.id == first.id
        watch = rescue.DeadWorkers("keeper")
        watch.take_back()
        assert read(taken.id).state == "active"
        silence("w")
        watch.take_back()
        assert read(taken.id).state == "available"
    texts = [query["sql"].lower() for query in sent.captured_queries]
    assert not [text for text in texts if any(word in text for word in OFF)]
    assert counts.by_queue(["small"])["small"] == {"available": 20}
    counts.fold()
    assert not counts.differences()


@pytest.mark.parametrize("missing", ["STATEMENT_TRIGGERS", "ADVISORY_LOCKS", "PROCEDURES"])
def test_a_site_without_one_thing_takes_jobs_in_all_ways(missing: str) -> None:
    # What is on must not use what is off: PUSH over HTTP asks the bounds within the statement.
    anybody = {"HTTP_AUTHENTICATION": ["django_ojs.http.authentication.AllowAny"]}
    api, job = Api(), {"type": "a.job", "args": [1]}
    try:
        with override_settings(OJS=anybody | {missing: False}):
            call_command("migrate", "django_ojs", verbosity=0)
            assert checks.check_schema([database.alias()]) == []
            queues.configure("small", {"backpressure": {"max_depth": 3}})
            ojs.enqueue("a.job")
            ojs.enqueue_batch([ojs.request("a.job", [n]) for n in range(3)])
            api.post("jobs", job).ok(201)
            api.post("jobs/batch", {"jobs": [job] * 3}).ok(201)
            few = job | {"options": {"queue": "small"}}
            api.post("jobs/batch", {"jobs": [few] * 3}).ok(201)
            api.post("jobs", few).error(429, "QUEUE_FULL")
            api.post("jobs/batch", {"jobs": [few] * 2}).error(429, "QUEUE_FULL")
            assert (counts.depth("default"), counts.depth("small")) == (8, 3)
    finally:
        call_command("migrate", "django_ojs", verbosity=0)
    assert checks.check_schema([database.alias()]) == []


def test_many_at_once_and_the_bound_the_key_and_the_counts_hold(lacking: dict[str, bool]) -> None:
    queues.configure("small", BOUNDED)

    def task(index: int) -> int:
        if index % 2:
            with transaction.atomic():
                ojs.enqueue_batch([ojs.request("a.job", [n], queue="small") for n in range(3)])
        else:
            for n in range(5):
                ojs.enqueue("a.job", [n], queue="small")
        return ojs.enqueue("a.job", [1], queue="one", unique=UNIQUE) is not None

    at_once(8, task)
    at_once(8, lambda _: ojs.enqueue("a.job", [1], queue="one", unique=UNIQUE))
    assert counts.depth("small") == 20
    assert counts.depth("one") == 1
    claimed = at_once(8, lambda _: [job.id for job in fetch.fetch(["small"], count=5)])
    ids = [key for each in claimed for key in each]
    assert len(ids) == len(set(ids)) == 20
    assert not counts.differences()
    # Without its rows a lock would lock nothing: that is an error.
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM ojs_lock")
    with pytest.raises(DatabaseError, match="Rows of ojs_lock are missing"):
        ojs.enqueue("a.job", [2], queue="one", unique=UNIQUE)
    call_command("migrate", "django_ojs", verbosity=0)
    ojs.enqueue("a.job", [2], queue="one", unique=UNIQUE)


def test_a_schema_for_other_settings_is_named_and_no_worker_starts_on_it() -> None:
    aliases, names = [database.alias()], ["STATEMENT_TRIGGERS", "ADVISORY_LOCKS", "PROCEDURES"]
    assert checks.check_schema(aliases) == []
    only = ("doctor", "--only", "capabilities")
    try:
        with override_settings(OJS=NONE | {"NOTIFY": True}):
            problems = checks.check_schema(aliases)
            assert {problem.id for problem in problems} == {"django_ojs.W005"}
            assert [problem.msg for problem in problems] == [
                f"OJS['{name}'] is False, and the schema was made for True." for name in names
            ]
            *found, listens = command(*only, "--json").json["checks"][0]["findings"]
            assert [each["found"] for each in found] == [
                f"The schema was not made for the setting {name}." for name in names
            ]
            assert "no worker listens" in listens["found"]
            with pytest.raises(CommandError, match=f"{', '.join(names)}. Stop the site and its"):
                call_command("ojs_worker", "--queues", "default")
        with override_settings(OJS=NONE):
            call_command("migrate", "django_ojs", verbosity=0)
            assert checks.check_schema(aliases) == []
            assert "without STATEMENT_TRIGGERS, ADVISORY_LOCKS, " in command(*only).out
    finally:
        call_command("migrate", "django_ojs", verbosity=0)
    assert "all are used (capabilities)" in command(*only).out

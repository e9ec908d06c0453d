"""What a handler leaves behind does not reach the next job; what it starts ends as elsewhere."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.management import call_command
from django.db import DatabaseError, connection, connections, transaction
from django.utils import timezone, translation

import django_ojs as ojs
from django_ojs.handler_registry import registry
from django_ojs.storage import database
from tests.testapp.models import Thing
from tests.worker.waiting import BOUND

pytestmark = [pytest.mark.django_db(transaction=True)]

#: How Python starts processes on Linux before 3.14.
FORK = multiprocessing.get_context("fork")
ONCE = ojs.RetryPolicy(max_attempts=1)


@pytest.fixture(autouse=True)
def handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "handlers", dict(registry.handlers))


def work() -> None:
    call_command("ojs_worker", "--once", "--threads=1", verbosity=0)


def test_a_language_and_a_time_zone_end_with_the_job() -> None:
    @ojs.job("left.german")
    def german() -> None:
        translation.activate("de")
        timezone.activate("Asia/Tokyo")

    @ojs.job("left.look")
    def look() -> list[str]:
        return [translation.get_language(), timezone.get_current_timezone_name()]

    before = look.enqueue()
    german.enqueue()
    after = look.enqueue()
    work()
    assert before.job().result == after.job().result


@pytest.mark.parametrize("context", ["ojs", "ojs_inline"])
def test_nor_do_they_reach_the_rest_of_a_test(context: str, request: pytest.FixtureRequest) -> None:
    @ojs.job("left.german")
    def german() -> None:
        translation.activate("de")
        timezone.activate("Asia/Tokyo")

    before = translation.get_language(), timezone.get_current_timezone_name()
    testing = request.getfixturevalue(context)
    german.enqueue()
    testing.drain()
    testing.perform(german)
    assert (translation.get_language(), timezone.get_current_timezone_name()) == before


@pytest.fixture
def kept() -> Iterator[list[Any]]:
    """Return a list that keeps a generator from being closed, as a cache does."""
    made: list[Any] = []
    yield made
    for each in made:
        with pytest.raises(Exception, match=r".*"), transaction.atomic():
            each.throw(RuntimeError)


def rows() -> Iterator[int]:
    with transaction.atomic():
        for number in range(3):
            Thing.objects.create(name=f"generated {number}")
            yield number


def enqueue_opened(kept: list[Any], kind: str) -> Any:
    def opened() -> int:
        generated = rows()
        kept.append(generated)
        return next(generated)

    if kind == "async":

        @ojs.job("left.opened", retry=ONCE)
        async def on_the_event_loop() -> int:
            return await sync_to_async(opened)()

        return on_the_event_loop.enqueue()
    return ojs.job("left.opened", atomic=kind == "atomic", retry=ONCE)(opened).enqueue()


@pytest.mark.parametrize("kind", ["plain", "atomic", "async"])
def test_a_transaction_that_is_left_open_fails_its_job_and_no_other(
    kept: list[Any], kind: str
) -> None:
    first = enqueue_opened(kept, kind)

    @ojs.job("left.write")
    def write(number: int) -> None:
        Thing.objects.create(name=f"written {number}")

    others = [write.enqueue(number) for number in range(2)]
    work()
    job = first.job()
    assert job.state == "discarded"
    assert "left a transaction of the database 'default' open" in job.error["message"]
    assert [(each.job().state, each.job().error) for each in others] == [("completed", None)] * 2
    assert set(Thing.objects.values_list("name", flat=True)) == {"written 0", "written 1"}


def begin(name: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
    Thing.objects.create(name=name)


def begin_and_fail(name: str) -> None:
    begin(name)
    # PostgreSQL rejects each further statement of the transaction.
    with suppress(DatabaseError), connection.cursor() as cursor:
        cursor.execute("SELECT * FROM no_such_table")


def switch_autocommit_off(name: str) -> None:
    transaction.set_autocommit(False)
    Thing.objects.create(name=name)


@pytest.mark.parametrize("kind", ["plain", "async"])
@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("opened", [begin, begin_and_fail, switch_autocommit_off])
def test_so_does_one_that_no_atomic_has_begun(
    opened: Callable[[str], None], raises: bool, kind: str
) -> None:
    def left() -> None:
        opened("lost")
        if raises:
            raise LookupError("between BEGIN and COMMIT")

    if kind == "async":

        @ojs.job("left.opened", retry=ONCE)
        async def on_the_event_loop() -> None:
            await sync_to_async(left)()

        first = on_the_event_loop.enqueue()
    else:
        first = ojs.job("left.opened", retry=ONCE)(left).enqueue()

    @ojs.job("left.write", atomic=True)
    def write(number: int) -> None:
        Thing.objects.create(name=f"written {number}")

    others = [write.enqueue(number) for number in range(2)]
    work()
    job = first.job()
    assert job.state == "discarded"
    expected = "between BEGIN" if raises else "left a transaction of the database 'default' open"
    assert expected in job.error["message"]
    assert [(each.job().state, each.job().error) for each in others] == [("completed", None)] * 2
    assert set(Thing.objects.values_list("name", flat=True)) == {"written 0", "written 1"}


@pytest.mark.parametrize("opened", [begin, switch_autocommit_off])
def test_a_transaction_that_a_handler_commits_itself_is_not_left_open(
    opened: Callable[[str], None],
) -> None:
    @ojs.job("left.committed", retry=ONCE)
    def committed(name: str) -> bool:
        found = connection.get_autocommit()
        opened(name)
        with connection.cursor() as cursor:
            cursor.execute("COMMIT")
        return found

    jobs = [committed.enqueue(f"kept {number}") for number in range(2)]
    work()
    # The second one has a connection that commits each statement again.
    assert [(each.job().state, each.job().result) for each in jobs] == [("completed", True)] * 2
    assert set(Thing.objects.values_list("name", flat=True)) == {"kept 0", "kept 1"}


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_transaction_of_another_database_is_rolled_back_too() -> None:
    @ojs.job("left.other", retry=ONCE)
    def other() -> None:
        with connections["other"].cursor() as cursor:
            cursor.execute("BEGIN")
        Thing.objects.using("other").create(name="lost")

    enqueued = other.enqueue()
    work()
    assert "of the database 'other' open" in enqueued.job().error["message"]
    assert not Thing.objects.using("other").exists()


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_it_fails_an_atomic_job_before_that_commits() -> None:
    @ojs.job("left.other", atomic=True, retry=ONCE)
    def other() -> None:
        Thing.objects.create(name="undone")
        block = transaction.atomic(using="other")
        block.__enter__()

    enqueued = other.enqueue()
    work()
    job = enqueued.job()
    assert job.state == "discarded"
    assert "of the database 'other' open" in job.error["message"]
    assert not Thing.objects.exists()


def test_whether_a_transaction_is_open_is_asked_of_no_server(
    django_assert_num_queries: Any,
) -> None:
    connection.ensure_connection()
    with django_assert_num_queries(0):
        assert not database.is_transaction_open(connections["default"])
    connection.close()
    assert not database.is_transaction_open(connections["default"])
    assert connection.connection is None


def test_where_the_driver_does_not_tell_autocommit_does() -> None:
    def is_open(*, autocommit: bool, configured: bool = True) -> bool:
        link: Any = SimpleNamespace(
            alias="reports",
            vendor="oracle",
            in_atomic_block=False,
            connection=object(),
            autocommit=autocommit,
            settings_dict={"AUTOCOMMIT": configured},
        )
        return database.is_transaction_open(link)

    assert not is_open(autocommit=True)
    assert is_open(autocommit=False)
    # The choice of the project, under which each query begins one.
    assert not is_open(autocommit=False, configured=False)


def spin() -> None:
    end = time.monotonic() + BOUND
    while time.monotonic() < end:
        time.sleep(0.01)


# Python 3.12 warns that a fork of a process with threads may deadlock.
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.interrupts
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_that_a_handler_forks_ends_by_a_signal(number: signal.Signals) -> None:
    @ojs.job("left.terminate")
    def terminate() -> int | None:
        process = FORK.Process(target=spin)
        process.start()
        assert process.pid is not None
        os.kill(process.pid, number)
        process.join(BOUND)
        code = process.exitcode
        process.kill()
        process.join()
        return code

    enqueued = terminate.enqueue()
    work()
    assert enqueued.job().result == -number


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.interrupts
def test_a_pool_of_processes_ends_at_a_timeout() -> None:
    @ojs.job("left.pool")
    def pool() -> str:
        # Otherwise a failure would be a hang: the end of a pool waits for its processes.
        rescue = threading.Timer(
            BOUND / 2, lambda: [each.kill() for each in multiprocessing.active_children()]
        )
        rescue.start()
        try:
            with FORK.Pool(1) as processes:
                processes.apply_async(spin).get(timeout=0.1)
        except multiprocessing.TimeoutError:
            return "rescued" if rescue.finished.is_set() else "ended"
        finally:
            rescue.cancel()
        return "no timeout"

    enqueued = pool.enqueue()
    work()
    assert enqueued.job().result == "ended"

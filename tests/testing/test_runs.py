"""A run on the thread of a test ends as one of a worker does, whatever its handler leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, transaction
from django.db.transaction import TransactionManagementError
from django.utils.connection import ConnectionDoesNotExist

import django_ojs as ojs
from django_ojs import job
from django_ojs.handler_registry import registry
from django_ojs.testing import Drained, TestContext
from tests.testapp.models import Thing

ONCE = ojs.RetryPolicy(max_attempts=1)


class Odd(BaseException):
    """Neither an error nor an exit."""


@pytest.fixture(autouse=True)
def handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "handlers", dict(registry.handlers))


@pytest.fixture
def context(ojs: TestContext) -> TestContext:
    return ojs


@pytest.fixture
def inline(db: None, ojs_inline: TestContext) -> TestContext:
    return ojs_inline


def names() -> set[str]:
    return set(Thing.objects.values_list("name", flat=True))


def rows() -> Iterator[int]:
    with transaction.atomic():
        Thing.objects.create(name="in the block")
        with transaction.atomic(savepoint=False):
            yield 1


def opening(kind: str, kept: list[Any], *, raises: bool = False) -> Any:
    """Return a handler that leaves two blocks open, in a generator that something holds."""

    def opened() -> int:
        Thing.objects.create(name="before the block")
        kept.append(rows())
        number: int = next(kept[-1])
        if raises:
            raise LookupError("in the block")
        return number

    if kind == "async":

        @ojs.job("runs.open", retry=ONCE)
        async def on_the_event_loop() -> int:
            return await sync_to_async(opened)()

        return on_the_event_loop
    return ojs.job("runs.open", atomic=kind == "atomic", retry=ONCE)(opened)


def leaves_the_test_alone(kept: list[Any]) -> None:
    """Check that transactions begin and end as before, also when the generator is closed."""
    blocks = len(connection.atomic_blocks)
    with pytest.raises(ConnectionDoesNotExist, match="left open by a handler"):
        kept[-1].close()
    assert len(connection.atomic_blocks) == blocks
    with transaction.atomic():
        Thing.objects.create(name="undone")
        transaction.set_rollback(True)
    with transaction.atomic():
        Thing.objects.create(name="after")
    assert "after" in names()
    assert "undone" not in names()


@pytest.mark.parametrize("kind", ["plain", "atomic", "async"])
@pytest.mark.parametrize("raises", [False, True])
def test_an_atomic_block_that_is_left_open_fails_the_job(
    context: TestContext, kind: str, raises: bool
) -> None:
    kept: list[Any] = []
    opening(kind, kept, raises=raises).enqueue()
    assert context.drain() == Drained(discarded=1)
    (job,) = context.enqueued()
    expected = "in the block" if raises else "left a transaction of the database 'default' open"
    assert expected in job.error["message"]
    # What a worker would have committed before stays.
    assert names() == (set() if kind == "atomic" else {"before the block"})
    leaves_the_test_alone(kept)


def test_it_fails_a_job_that_runs_inline(inline: TestContext) -> None:
    kept: list[Any] = []
    handler = opening("plain", kept)
    with pytest.raises(TransactionManagementError, match="left a transaction"):
        handler.enqueue()
    assert [job.state for job in inline.enqueued()] == ["discarded"]
    leaves_the_test_alone(kept)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", ["plain", "atomic", "async"])
def test_it_fails_the_job_in_a_test_without_a_transaction(ojs: TestContext, kind: str) -> None:
    kept: list[Any] = []
    opening(kind, kept).enqueue()
    assert ojs.drain() == Drained(discarded=1)
    assert not connection.in_atomic_block
    assert connection.get_autocommit()
    leaves_the_test_alone(kept)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("begun_by", ["BEGIN", "set_autocommit"])
def test_so_does_a_transaction_that_no_atomic_has_begun(ojs: TestContext, begun_by: str) -> None:
    @job("runs.begin", retry=ONCE)
    def begin() -> None:
        if begun_by == "BEGIN":
            with connection.cursor() as cursor:
                cursor.execute("BEGIN")
        else:
            transaction.set_autocommit(False)
        Thing.objects.create(name="lost")

    begin.enqueue()
    assert ojs.drain() == Drained(discarded=1)
    assert connection.get_autocommit()
    assert names() == set()


@pytest.mark.django_db(transaction=True)
def test_a_transaction_that_the_test_has_begun_itself_stays_as_it_is(ojs: TestContext) -> None:
    kept: list[Any] = []
    handler = opening("plain", kept)
    transaction.set_autocommit(False)
    try:
        Thing.objects.create(name="of the test")
        handler.enqueue()
        assert ojs.drain() == Drained(discarded=1)
        assert not connection.get_autocommit()
        assert names() == {"of the test", "before the block"}
        with pytest.raises(ConnectionDoesNotExist, match="left open by a handler"):
            kept[-1].close()
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
    assert names() == set()


def test_an_atomic_handler_that_rolls_back_fails_inline_too(inline: TestContext) -> None:
    @ojs.job("runs.rollback", atomic=True, retry=ONCE)
    def roll_back() -> None:
        Thing.objects.create(name="gone")
        transaction.set_rollback(True)

    with pytest.raises(TransactionManagementError):
        roll_back.enqueue()
    assert [job.state for job in inline.enqueued()] == ["discarded"]
    assert names() == set()


def test_as_it_fails_in_a_drain(context: TestContext) -> None:
    @ojs.job("runs.rollback", atomic=True, retry=ONCE)
    def roll_back() -> None:
        Thing.objects.create(name="gone")
        transaction.set_rollback(True)

    roll_back.enqueue()
    assert context.drain() == Drained(discarded=1)
    assert names() == set()


def raising(error: type[BaseException], is_async: bool) -> Any:
    def throw() -> None:
        raise error("no")

    async def athrow() -> None:
        throw()

    return ojs.job("runs.throw", retry=ONCE)(athrow if is_async else throw)


FAILING = [asyncio.CancelledError, GeneratorExit, SystemExit, Odd]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("error", FAILING)
def test_whatever_a_handler_raises_fails_its_job(
    context: TestContext, error: type[BaseException], is_async: bool
) -> None:
    raising(error, is_async).enqueue()
    assert context.drain() == Drained(discarded=1)
    assert [job.error["type"] for job in context.enqueued()] == [error.__name__]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("error", FAILING)
def test_inline_it_is_raised_too(
    inline: TestContext, error: type[BaseException], is_async: bool
) -> None:
    with pytest.raises(error):
        raising(error, is_async).enqueue()
    assert [job.error["type"] for job in inline.enqueued()] == [error.__name__]


ENDING = [KeyboardInterrupt, pytest.fail.Exception, pytest.skip.Exception, pytest.exit.Exception]


@pytest.mark.parametrize("error", ENDING)
def test_what_ends_the_test_is_not_the_failure_of_a_job(
    context: TestContext, error: type[BaseException]
) -> None:
    raising(error, False).enqueue()
    with pytest.raises(error):
        context.drain()
    assert [job.state for job in context.enqueued()] == ["active"]


@pytest.mark.parametrize("error", ENDING)
def test_nor_inline(inline: TestContext, error: type[BaseException]) -> None:
    with pytest.raises(error):
        raising(error, False).enqueue()
    assert [job.state for job in inline.enqueued()] == ["active"]

"""Django's signals of a task: when they are sent, by which backend, with which result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest
from django.db import transaction

import django_ojs as ojs
from django_ojs.operations import promotion
from tests.factories import age
from tests.receivers import receiving
from tests.tasks.names import OJSBackend, task_enqueued, task_finished, task_started
from tests.tasks.work import job_of, work

pytestmark = pytest.mark.django_db

#: What is sent: the signal, and id and status of the result.
Sent = list[tuple[str, str, str]]
NAMES = {"enqueued": task_enqueued, "started": task_started, "finished": task_finished}


@pytest.fixture
def sent(tasks: ModuleType) -> Iterator[Sent]:
    found: Sent = []

    def note(signal: Any, sender: type, task_result: Any, **kwargs: Any) -> None:
        assert sender is OJSBackend
        name = next(name for name, each in NAMES.items() if each is signal)
        found.append((name, task_result.id, str(task_result.status)))

    with receiving(note, *NAMES.values()):
        yield found


@pytest.fixture
def committed(django_capture_on_commit_callbacks: Any) -> Any:
    """Return a context that runs what waits for the commit of the test's transaction."""

    def block() -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = django_capture_on_commit_callbacks(execute=True)
        return context

    return block


def test_task_enqueued_is_sent_after_the_commit(
    tasks: ModuleType, sent: Sent, committed: Any
) -> None:
    with committed():
        result = tasks.add.enqueue(1)
        assert sent == []
    assert sent == [("enqueued", result.id, "READY")]


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
@pytest.mark.parametrize("alias", ["default", "other"])
def test_task_enqueued_follows_the_commit_that_stores_the_job_or_its_row_of_the_outbox(
    tasks: ModuleType, sent: Sent, settings: Any, alias: str
) -> None:
    settings.OJS = settings.OJS | {"WRONG_DATABASE": "outbox"}
    with transaction.atomic(using=alias):
        tasks.add.enqueue(1)
        transaction.set_rollback(True, using=alias)
    assert sent == []
    with transaction.atomic(using=alias):
        result = tasks.add.enqueue(1)
        assert sent == []
    assert sent == [("enqueued", result.id, "READY")]


def test_task_enqueued_is_not_sent_after_a_rollback(
    tasks: ModuleType, sent: Sent, committed: Any
) -> None:
    with committed(), transaction.atomic():
        tasks.add.enqueue(1)
        transaction.set_rollback(True)
    assert sent == []


def test_a_duplicate_is_not_enqueued(tasks: ModuleType, sent: Sent, committed: Any) -> None:
    with committed():
        first, second = tasks.book.enqueue(1), tasks.book.enqueue(1)
    assert sent == [("enqueued", first.id, "READY")]
    assert second.id == first.id


@pytest.mark.parametrize(("name", "argument"), [("add", 1), ("shout", "hi")])
def test_a_run_is_started_and_finished(
    tasks: ModuleType,
    sent: Sent,
    committed: Any,
    name: str,
    argument: Any,
) -> None:
    result = getattr(tasks, name).enqueue(argument)
    with committed():
        work()
    assert sent == [("started", result.id, "RUNNING"), ("finished", result.id, "SUCCESSFUL")]


def test_a_run_that_is_retried_has_not_finished(
    tasks: ModuleType, sent: Sent, committed: Any
) -> None:
    result = tasks.fail.using(retry={"max_attempts": 2}).enqueue("no")
    with committed():
        work()
    assert sent == [("started", result.id, "RUNNING")]
    sent.clear()
    age(job_of(result).pk, timedelta(hours=1))
    promotion.promote()
    with committed():
        work()
    assert sent == [("started", result.id, "RUNNING"), ("finished", result.id, "FAILED")]


def test_a_cancelled_task_has_finished(tasks: ModuleType, sent: Sent, committed: Any) -> None:
    result = tasks.add.enqueue(1)
    with committed():
        ojs.cancel(result.id)
    assert sent == [("finished", result.id, "FAILED")]


def test_a_job_that_is_no_task_sends_nothing(tasks: ModuleType, sent: Sent, committed: Any) -> None:
    with committed():
        ojs.enqueue("testapp.add", [1])
        assert work() == 1
    assert sent == []


def test_a_receiver_that_raises_harms_nothing(
    tasks: ModuleType, sent: Sent, committed: Any
) -> None:
    def broken(**kwargs: Any) -> None:
        raise RuntimeError("a receiver is broken")

    with receiving(broken, *NAMES.values()), committed():
        result = tasks.shout.enqueue("hi")
        work()
    assert [name for name, _, _ in sent] == ["started", "enqueued", "finished"]
    assert job_of(result).state == "completed"

"""Tasks where jobs are in several databases, and in the outbox of another one."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from django.db import transaction

from django_ojs.storage import database
from tests.tasks.names import task_backends, task_enqueued
from tests.tasks.work import work

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


@pytest.fixture
def enqueued() -> Iterator[list[str]]:
    """Return the ids of the tasks whose enqueue was signalled."""
    seen: list[str] = []

    def receiver(sender: Any, task_result: Any, **kwargs: Any) -> None:
        seen.append(task_result.id)

    task_enqueued.connect(receiver)
    yield seen
    task_enqueued.disconnect(receiver)


@pytest.mark.parametrize("alias", ["default", "other"])
def test_a_result_has_the_failed_runs_of_its_database(
    tasks: ModuleType, settings: Any, alias: str
) -> None:
    settings.OJS = settings.OJS | {"DATABASES": ["default", "other"]}
    with transaction.atomic(using=alias):
        result = tasks.fail.enqueue("no such order")
    with database.selected_for_process(alias):
        work("worker-a")
    found = task_backends["default"].get_result(result.id)
    (error,) = found.errors
    assert error.exception_class is ValueError
    assert (found.worker_ids, found.attempts) == (["worker-a"], 1)


@pytest.mark.parametrize(
    "values", [{"DATABASES": ["default", "other"]}, {"WRONG_DATABASE": "outbox"}]
)
@pytest.mark.parametrize("alias", ["default", "other"])
def test_the_enqueue_is_signalled_after_the_commit_of_its_transaction(
    tasks: ModuleType, settings: Any, enqueued: list[str], values: dict[str, Any], alias: str
) -> None:
    settings.OJS = settings.OJS | values
    with transaction.atomic(using=alias):
        tasks.add.enqueue(1)
        transaction.set_rollback(True, using=alias)
    assert enqueued == []
    with transaction.atomic(using=alias):
        result = tasks.add.enqueue(1)
        assert enqueued == []
    assert enqueued == [result.id]

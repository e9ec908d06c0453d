"""A view enqueues a task in its transaction, and a real worker runs it."""

from __future__ import annotations

from types import ModuleType

import pytest
from django.db import transaction

from django_ojs.models import Job
from tests.tasks.names import TaskResultStatus
from tests.testapp.models import Thing
from tests.worker.acceptance.conftest import Start, start
from tests.worker.waiting import eventually

__all__ = ["start"]  # a fixture

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.slow,
    pytest.mark.smoke,
]


def place_order(tasks: ModuleType, order: int, *, paid: bool) -> str:
    """Do what a view does: store rows, and enqueue a task with them."""
    with transaction.atomic():
        result = tasks.book.enqueue(order, note="by card")
        if not paid:
            raise ValueError("The card was rejected.")
    return str(result.id)


def test_a_task_runs_once_its_transaction_has_committed(tasks: ModuleType, start: Start) -> None:
    with pytest.raises(ValueError, match="rejected"):
        place_order(tasks, 1, paid=False)
    assert not Job.objects.exists()

    booked = place_order(tasks, 2, paid=True)
    broken = tasks.fail.using(retry={"max_attempts": 1}).enqueue("no such order")
    shouted = tasks.shout.enqueue("hi")
    tree = start("--queues", "email,default", DJANGO_SETTINGS_MODULE="tests.tasks.settings").ready()

    def results() -> list[object]:
        return [
            tasks.book.get_result(booked),
            tasks.fail.get_result(broken.id),
            tasks.shout.get_result(shouted.id),
        ]

    eventually(
        lambda: all(each.is_finished for each in results()),  # type: ignore[attr-defined]  # results
        f"the tasks have finished; the worker said:\n{tree.log}",
    )
    good, bad, loud = results()
    assert (good.return_value, good.attempts) == (Thing.objects.get().pk, 1)
    assert (bad.status, bad.errors[0].exception_class) == (TaskResultStatus.FAILED, ValueError)
    assert loud.return_value == "HI 1"
    for task_id, path, status in (
        (booked, "book", "SUCCESSFUL"),
        (broken.id, "fail", "FAILED"),
        (shouted.id, "shout", "SUCCESSFUL"),
    ):
        for state in ("RUNNING", status):
            tree.says(f"Task id={task_id} path=tests.tasks.tasks.{path} state={state}")
